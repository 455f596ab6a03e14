// Reading: a question is answered. Retrieve -> choose -> compose -> pin -> inject and generate.
#include <algorithm>
#include <iterator>
#include <utility>

#include "app/app_impl.h"
#include "kv/rank_key.h"

namespace inferscale {
namespace {

// Hits are asked for beyond what is used: several hits fall into one episode.
constexpr size_t kHitsPerFact = 3;
constexpr size_t kMinHits = 64;
// Episodes are read in portions until enough facts are at hand.
constexpr size_t kEpisodePortion = 12;
// Composing again after unusable KV was forgotten; every round has less KV, the last has none.
constexpr int kComposeRounds = 3;
// For what opens a further block of facts.
constexpr size_t kBlockRoom = 32;

}  // namespace

struct AppImpl::Recall {
  std::vector<SearchHit> hits;
  std::unordered_map<int64_t, Episode> episodes;
  std::unordered_map<int64_t, EpisodeKv> kv;
};

Result<AppImpl::Recall> AppImpl::Retrieve(const AskRequest& request, const ComposeOptions& options,
                                          const HeldTurns* held, AskTimes& times) {
  Recall recall;
  if (request.mode == MemoryMode::kNone || options.facts == 0) return recall;
  if (request.scope.user.empty()) return Fail(Code::kInvalid, "whose memory? no user is named");
  Stopwatch watch;
  // Else an episode would bring its expired facts along.
  INFERSCALE_ASSIGN(const size_t expired, facts_->DeleteExpired());
  if (expired > 0) INFERSCALE_TRY(CollectGarbage());
  INFERSCALE_ASSIGN(const std::vector<float> vector, embedder_->EmbedOne(request.question));
  times.embed_ms = watch.LapMs();
  const size_t held_facts = held == nullptr ? 0 : held->versions.size();
  const size_t limit = std::max(kMinHits, kHitsPerFact * (options.facts + held_facts));
  INFERSCALE_ASSIGN(recall.hits, index_->Search({request.scope, request.question, vector, limit,
                                                 request.filter}));
  times.search_ms = watch.LapMs();

  std::vector<int64_t> ids;  // best first
  std::unordered_set<int64_t> seen;
  for (const SearchHit& hit : recall.hits) {
    if (held != nullptr && held->versions.contains(hit.row)) continue;
    if (seen.insert(hit.episode).second) ids.push_back(hit.episode);
  }
  size_t facts_at_hand = 0;
  size_t read = 0;
  while (read < ids.size() && facts_at_hand < options.facts + kMinHits / 2) {
    const size_t count = std::min(kEpisodePortion, ids.size() - read);
    INFERSCALE_ASSIGN(auto episodes, facts_->GetEpisodes(std::span(ids).subspan(read, count)));
    for (Episode& episode : episodes) {
      fact_tokens_->Expect(episode.facts);
      facts_at_hand += episode.facts.size();
      recall.episodes.emplace(episode.id, std::move(episode));
    }
    read += count;
  }
  if (!engine_->info().injection) return recall;
  // For text too: what has KV decides the order, and both modes read the same prompt.
  INFERSCALE_ASSIGN(auto kv,
                    facts_->GetKv(std::span(ids).first(read), codec_->fingerprint(), encoding_));
  for (EpisodeKv& record : kv) recall.kv.emplace(record.episode, std::move(record));
  return recall;
}

Result<std::vector<Token>> AppImpl::TailTokens(const AskRequest& request, const HeldTurns* held,
                                               bool with_facts) const {
  const PromptFormat& format = engine_->format();
  const bool continued = held != nullptr && !held->tokens.empty();
  if (continued && !with_facts) return format.NextTail(held->ended, request.question);
  if (continued || request.before.empty()) return format.Tail(request.question);
  INFERSCALE_ASSIGN(std::vector<Token> tokens, format.Tail(request.before.front().user));
  for (size_t i = 0; i < request.before.size(); ++i) {
    const bool last = i + 1 == request.before.size();
    INFERSCALE_ASSIGN(const auto answer, format.Text(request.before[i].assistant));
    INFERSCALE_ASSIGN(
        const auto next,
        format.NextTail(/*ended=*/false, last ? request.question : request.before[i + 1].user));
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    tokens.insert(tokens.end(), next.begin(), next.end());
  }
  return tokens;
}

Result<AppImpl::TakenSpan> AppImpl::TakeSpan(const KvSpan& span, const Composition& composition,
                                             Pins& pins) {
  const ModelInfo& model = engine_->info();
  auto& pin = pins[span.key];
  if (pin == nullptr) {
    const bool header = span.key == header_key_;
    auto got = kv_->Get(span.key, header ? model.fingerprint : codec_->fingerprint(),
                        header ? model.shape : codec_->shape());
    if (!got) {
      pins.erase(span.key);
      return tl::unexpected(std::move(got).error());
    }
    pin = std::move(*got);
  }
  const auto wanted = std::span(composition.tokens).subspan(span.first, span.tokens);
  const auto stored = pin->tokens();
  if (stored.size() < size_t{span.record_token} + span.tokens ||
      !std::equal(wanted.begin(), wanted.end(), stored.begin() + span.record_token)) {
    return Fail(Code::kConflict, "record {} holds other tokens", span.key.Hex());
  }
  return TakenSpan{
      {span.first, span.tokens, span.record_token, codec_->View(pin->view()), pin, span.key},
      pin->tier()};
}

Result<AppImpl::TakenSpan> AppImpl::NameSpan(const KvSpan& span, const Composition& composition,
                                             const std::string& tenant) {
  const auto tokens = std::span(composition.tokens).subspan(span.first, span.tokens);
  std::vector<KvClaim> claims;
  for (const Hash128& key : RankKeys({&span.key, 1}, engine_->info().kv_ranks)) {
    claims.push_back({key, span.record_token, tokens});
  }
  for (const Status& claim : kv_->Check({tenant, codec_->fingerprint(), codec_->shape()}, claims)) {
    INFERSCALE_TRY(claim);
  }
  return TakenSpan{{span.first, span.tokens, span.record_token, {}, nullptr, span.key},
                   Tier::kEngine};
}

Result<bool> AppImpl::Pin(const Composition& composition, const std::string& tenant,
                          Prepared& prepared, std::unordered_map<Hash128, Tier>& tiers) {
  std::vector<Hash128> unusable;
  Pins pins;
  for (const KvSpan& span : composition.spans) {
    auto taken = engine_->info().stores_kv ? NameSpan(span, composition, tenant)
                                           : TakeSpan(span, composition, pins);
    if (!taken) {
      // No room or no file handle is no reason to forget: these tokens are computed this time.
      const Code code = taken.error().code;
      const bool gone = code == Code::kNotFound || code == Code::kCorrupt ||
                        code == Code::kConflict || code == Code::kInvalid;
      if (gone) unusable.push_back(span.key);
      continue;
    }
    tiers[span.key] = taken->tier;
    prepared.prompt.spans.push_back(std::move(taken->span));
  }
  if (unusable.empty()) return true;
  stale_kv_ += unusable.size();
  INFERSCALE_TRY(facts_->ForgetKv(unusable));
  INFERSCALE_TRY(CollectGarbage());
  return false;
}

namespace {

// The prompt so far and what its facts are, as a user is told.
void Describe(const Composition& composition, const std::unordered_map<Hash128, Tier>& tiers,
              Prepared& prepared) {
  prepared.facts.clear();
  for (const ComposedFact& composed : composition.facts) {
    UsedFact used{*composed.fact, composed.score, composed.tokens, false, Tier::kHost};
    for (const KvSpan& span : composition.spans) {
      if (composed.first_token < span.first || composed.first_token >= span.first + span.tokens) {
        continue;
      }
      const auto tier = tiers.find(span.key);
      used.injected = tier != tiers.end();
      if (used.injected) used.tier = tier->second;
    }
    prepared.facts.push_back(std::move(used));
  }
}

}  // namespace

std::unordered_set<int64_t> AppImpl::Excluded(const AskRequest& request, const Recall& recall,
                                              const HeldTurns* held) {
  std::unordered_set<int64_t> rows;
  if (held != nullptr) {
    for (const auto& [row, version] : held->versions) rows.insert(row);
  }
  if (request.filter == nullptr) return rows;
  // An episode comes whole, but not with facts that the filter keeps out.
  for (const auto& [id, episode] : recall.episodes) {
    for (const Fact& fact : episode.facts) {
      if (!request.filter->Matches(fact)) rows.insert(fact.row);
    }
  }
  return rows;
}

Result<MemoryMode> AppImpl::ModeFor(const AskRequest& request, size_t facts, bool first_turn) {
  if (request.mode != MemoryMode::kAuto) return request.mode;
  INFERSCALE_ASSIGN(const auto verdict, Verdict());
  if (verdict && !verdict->passed) return MemoryMode::kText;
  const uint32_t measured = verdict ? verdict->least_facts : 0;
  const uint32_t least = request.auto_facts.value_or(measured > 0 ? measured : kAutoFacts);
  // What a conversation holds stands before a later turn's facts, as a window does.
  return first_turn && facts < least ? MemoryMode::kText : MemoryMode::kKv;
}

Result<Prepared> AppImpl::Prepare(const AskRequest& request, const HeldTurns* held) {
  Prepared prepared;
  ComposeOptions options = request.compose;
  engine_->format().Expect(request.question);  // while it is embedded
  INFERSCALE_ASSIGN(Recall recall, Retrieve(request, options, held, prepared.times));

  Stopwatch watch;
  const bool first_turn = held == nullptr || held->tokens.empty();
  std::vector<Token> before = first_turn ? header_ : held->tokens;
  INFERSCALE_ASSIGN(const std::vector<Token> longest_tail, TailTokens(request, held, true));
  const size_t room_taken = before.size() + longest_tail.size() + request.sampling.max_tokens +
                            kBlockRoom + engine_->info().cache_block_tokens;
  const size_t context = engine_->info().context_tokens;
  if (room_taken > context) {
    // By itself it never fits; what a conversation holds can be let go.
    return Fail(first_turn ? Code::kInvalid : Code::kExhausted,
                "the question and the answer's {} tokens do not fit into the context of {} tokens",
                request.sampling.max_tokens, context);
  }
  const auto room = static_cast<uint32_t>(context - room_taken);
  options.fact_tokens = options.fact_tokens == 0 ? room : std::min(options.fact_tokens, room);
  if (options.fact_tokens == 0) options.facts = 0;

  const std::vector<Piece> pieces =
      ChoosePieces(recall.hits, recall.episodes, Excluded(request, recall, held), options,
                   [this](const Fact& fact) {
                     const auto tokens = fact_tokens_->Get(fact);
                     return tokens ? static_cast<uint32_t>((*tokens)->size()) : UINT32_MAX / 2;
                   });
  size_t facts = 0;
  for (const Piece& piece : pieces) facts += piece.count;
  INFERSCALE_ASSIGN(prepared.mode, ModeFor(request, facts, first_turn));
  std::vector<Token> tail = longest_tail;
  if (!first_turn && pieces.empty()) {
    INFERSCALE_ASSIGN(tail, TailTokens(request, held, false));
  }
  if (!first_turn && !pieces.empty()) {
    INFERSCALE_ASSIGN(before, NextOpening(*held));
  }
  Opening opening{before, first_turn && header_has_kv_ ? header_key_ : Hash128{}};

  for (int round = 1;; ++round) {
    INFERSCALE_ASSIGN(Composition composition, Compose(opening, pieces, tail, recall.kv,
                                                       recall.hits, options, *fact_tokens_));
    if (prepared.mode != MemoryMode::kKv) composition.spans.clear();
    prepared.times.compose_ms += watch.LapMs();
    std::unordered_map<Hash128, Tier> tiers;
    prepared.prompt.spans = held == nullptr ? std::vector<PromptSpan>{} : held->spans;
    INFERSCALE_ASSIGN(const bool usable, Pin(composition, request.scope.tenant, prepared, tiers));
    prepared.times.load_ms += watch.LapMs();
    if (usable || round > kComposeRounds) {
      Describe(composition, tiers, prepared);
      prepared.prompt.tokens = std::move(composition.tokens);
      return prepared;
    }
    // What was unusable is computed, and stands behind what is injected: so compose again.
    for (auto record = recall.kv.begin(); record != recall.kv.end();) {
      record = tiers.contains(record->second.key) ? std::next(record) : recall.kv.erase(record);
    }
    if (!opening.key.IsZero() && !tiers.contains(opening.key)) {
      opening.key = {};
      INFERSCALE_TRY(EnsureHeaderKv());  // for the next question
    }
    if (round == kComposeRounds) {
      recall.kv.clear();
      opening.key = {};
    }
  }
}

Result<Answer> AppImpl::Generate(Prepared prepared, const AskRequest& request, uint64_t session,
                                 const Stopwatch& since_question, const OnPiece& on_piece,
                                 std::vector<Token>* generated) {
  Answer answer;
  answer.mode = prepared.mode;
  answer.facts = std::move(prepared.facts);
  answer.times = prepared.times;
  const double before_engine_ms = since_question.Ms();
  Sampling sampling = request.sampling;
  if (const auto stop = engine_->format().Stop(); !stop.empty()) sampling.stop.emplace_back(stop);
  INFERSCALE_ASSIGN(Choices all, GenerateChoices(*engine_,
                                                 {.prompt = std::move(prepared.prompt),
                                                  .sampling = std::move(sampling),
                                                  .session = session,
                                                  .tenant = request.scope.tenant,
                                                  .stop = request.stop,
                                                  .traceparent = request.traceparent},
                                                 request.choices, on_piece));
  static_cast<Choice&>(answer) = std::move(all.choices.front());
  answer.others.assign(std::make_move_iterator(all.choices.begin() + 1),
                       std::make_move_iterator(all.choices.end()));
  answer.stats = all.stats;
  answer.times.inject_ms = answer.stats.inject_ms;
  answer.times.prefill_ms = answer.stats.prefill_ms;
  answer.times.first_token_ms = before_engine_ms + answer.stats.first_token_ms;
  answer.times.total_ms = since_question.Ms();
  if (generated != nullptr) *generated = std::move(all.tokens);
  return answer;
}

Result<Answer> AppImpl::Ask(const AskRequest& request, const OnPiece& on_piece) {
  INFERSCALE_TRY(NeedAtLeast(Need::kAnswer, "Ask"));
  const Stopwatch since_question;
  INFERSCALE_ASSIGN(Prepared prepared, Prepare(request, nullptr));
  const bool several = DistinctChoices(request.sampling, request.choices) > 1;
  const uint64_t session = several ? next_session_++ : 0;
  auto answer = Generate(std::move(prepared), request, session, since_question, on_piece, nullptr);
  if (several) engine_->EndSession(session);
  return answer;
}

Result<Prompt> AppImpl::ComposePrompt(const AskRequest& request, std::vector<UsedFact>* used,
                                      AskTimes* times) {
  INFERSCALE_TRY(NeedAtLeast(Need::kAnswer, "ComposePrompt"));
  INFERSCALE_ASSIGN(Prepared prepared, Prepare(request, nullptr));
  if (used != nullptr) *used = std::move(prepared.facts);
  if (times != nullptr) *times = prepared.times;
  return std::move(prepared.prompt);
}

}  // namespace inferscale
