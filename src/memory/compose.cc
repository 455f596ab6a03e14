#include "memory/compose.h"

#include <algorithm>
#include <list>
#include <utility>

#include "base/mutex.h"

namespace inferscale {

// ---- FactTokens --------------------------------------------------------------------------------

struct FactTokens::Impl {
  struct Entry {
    Hash128 owner;
    Hash128 line;
    std::shared_ptr<const std::vector<Token>> tokens;
  };
  using Lines = std::unordered_map<Hash128, std::list<Entry>::iterator>;

  const PromptFormat& format;
  size_t max_facts;
  mutable Mutex mutex;
  std::list<Entry> used GUARDED_BY(mutex);  // most recently used first
  std::unordered_map<Hash128, Lines> owners GUARDED_BY(mutex);

  std::shared_ptr<const std::vector<Token>> Find(const Hash128& owner, const Hash128& line) {
    MutexLock lock(mutex);
    const auto lines = owners.find(owner);
    if (lines == owners.end()) return nullptr;
    const auto found = lines->second.find(line);
    if (found == lines->second.end()) return nullptr;
    used.splice(used.begin(), used, found->second);
    return found->second->tokens;
  }
  void DropLast() REQUIRES(mutex) {
    const auto lines = owners.find(used.back().owner);
    lines->second.erase(used.back().line);
    if (lines->second.empty()) owners.erase(lines);
    used.pop_back();
  }
};

FactTokens::FactTokens(const PromptFormat& format, size_t max_facts)
    : impl_(new Impl{format, max_facts, {}, {}, {}}) {}
FactTokens::~FactTokens() = default;

Result<std::shared_ptr<const std::vector<Token>>> FactTokens::Get(const Fact& fact) {
  // By the line itself: what is kept for an earlier version is never taken for this one's.
  const std::string line_text = RenderFact(fact);
  const Hash128 line = HashBytes(AsBytes(line_text));
  const Hash128 owner = OwnerHash(fact.scope.tenant, fact.scope.user);
  if (auto found = impl_->Find(owner, line)) return found;
  INFERSCALE_ASSIGN(std::vector<Token> ids, impl_->format.Text(line_text));
  auto tokens = std::make_shared<const std::vector<Token>>(std::move(ids));
  MutexLock lock(impl_->mutex);
  Impl::Lines& lines = impl_->owners[owner];
  if (lines.contains(line)) return tokens;  // another thread was first
  impl_->used.push_front({owner, line, tokens});
  lines.emplace(line, impl_->used.begin());
  if (impl_->used.size() > impl_->max_facts) impl_->DropLast();
  return tokens;
}

void FactTokens::Expect(std::span<const Fact> facts) {
  for (const Fact& fact : facts) {
    const std::string line = RenderFact(fact);
    const Hash128 owner = OwnerHash(fact.scope.tenant, fact.scope.user);
    if (impl_->Find(owner, HashBytes(AsBytes(line))) == nullptr) impl_->format.Expect(line);
  }
}

void FactTokens::Forget(const std::string& tenant, const std::string& user) {
  MutexLock lock(impl_->mutex);
  const auto lines = impl_->owners.find(OwnerHash(tenant, user));
  if (lines == impl_->owners.end()) return;
  for (const auto& [line, entry] : lines->second) impl_->used.erase(entry);
  impl_->owners.erase(lines);
}

size_t FactTokens::size() const {
  MutexLock lock(impl_->mutex);
  return impl_->used.size();
}

// ---- ChoosePieces ------------------------------------------------------------------------------
namespace {

struct Budget {
  uint32_t facts;
  uint32_t tokens;  // UINT32_MAX: no limit
};

// The facts [first, first + count) if the budget has room for all, which is then spent.
bool TakeRun(const Episode& episode, uint32_t first, uint32_t count,
             const std::function<uint32_t(const Fact&)>& tokens_of, Budget& budget) {
  if (count > budget.facts) return false;
  uint64_t tokens = 0;
  for (uint32_t i = first; i < first + count; ++i) tokens += tokens_of(episode.facts[i]);
  if (tokens > budget.tokens) return false;
  budget.facts -= count;
  if (budget.tokens != UINT32_MAX) budget.tokens -= static_cast<uint32_t>(tokens);
  return true;
}

// The runs of an episode's facts that are not held already.
std::vector<Piece> FreeRuns(const Episode& episode, const std::unordered_set<int64_t>& held) {
  std::vector<Piece> runs;
  for (uint32_t i = 0; i < episode.facts.size(); ++i) {
    if (held.contains(episode.facts[i].row)) continue;
    if (runs.empty() || runs.back().first + runs.back().count != i) {
      runs.push_back({&episode, i, 0, 0.0F});
    }
    ++runs.back().count;
  }
  return runs;
}

// What of an episode comes in for a hit: all free runs, or else as many facts up to the hit as fit.
std::vector<Piece> TakeEpisode(const Episode& episode, uint32_t hit,
                               const std::unordered_set<int64_t>& held,
                               const std::function<uint32_t(const Fact&)>& tokens_of,
                               Budget& budget) {
  std::vector<Piece> runs = FreeRuns(episode, held);
  const Budget before = budget;
  const bool all_fit = std::all_of(runs.begin(), runs.end(), [&](const Piece& run) {
    return TakeRun(episode, run.first, run.count, tokens_of, budget);
  });
  if (all_fit) return runs;
  budget = before;
  const auto run = std::find_if(runs.begin(), runs.end(), [&](const Piece& r) {
    return hit >= r.first && hit < r.first + r.count;
  });
  if (run == runs.end()) return {};
  for (uint32_t first = run->first; first <= hit; ++first) {
    const uint32_t count = hit - first + 1;
    if (TakeRun(episode, first, count, tokens_of, budget)) return {{&episode, first, count, 0.0F}};
  }
  return {};
}

}  // namespace

std::vector<Piece> ChoosePieces(std::span<const SearchHit> hits,
                                const std::unordered_map<int64_t, Episode>& episodes,
                                const std::unordered_set<int64_t>& held,
                                const ComposeOptions& options,
                                const std::function<uint32_t(const Fact&)>& tokens_of) {
  Budget budget{options.facts, options.fact_tokens == 0 ? UINT32_MAX : options.fact_tokens};
  std::vector<std::vector<Piece>> chosen;  // best episode first
  std::unordered_set<int64_t> seen;
  for (const SearchHit& hit : hits) {
    if (budget.facts == 0) break;
    const auto found = episodes.find(hit.episode);
    if (found == episodes.end() || held.contains(hit.row) || seen.contains(hit.episode)) continue;
    const Episode& episode = found->second;
    const auto fact = std::find_if(episode.facts.begin(), episode.facts.end(),
                                   [&](const Fact& f) { return f.row == hit.row; });
    if (fact == episode.facts.end()) continue;  // it has moved or gone since the search
    auto pieces = TakeEpisode(episode, static_cast<uint32_t>(fact - episode.facts.begin()), held,
                              tokens_of, budget);
    if (pieces.empty()) continue;
    for (Piece& piece : pieces) piece.score = hit.score;
    seen.insert(hit.episode);
    chosen.push_back(std::move(pieces));
  }
  std::vector<Piece> out;
  for (auto group = chosen.rbegin(); group != chosen.rend(); ++group) {
    out.insert(out.end(), group->begin(), group->end());
  }
  return out;
}

// ---- Compose -----------------------------------------------------------------------------------
namespace {

// One fact of the composition and where its KV is, if it has any.
struct Placed {
  const Fact* fact;
  std::shared_ptr<const std::vector<Token>> tokens;
  const EpisodeKv* kv;  // nullptr: none
  uint32_t record_token;
};

Result<std::vector<Placed>> PlacePiece(const Piece& piece,
                                       const std::unordered_map<int64_t, EpisodeKv>& kv,
                                       FactTokens& tokens) {
  const auto found = kv.find(piece.episode->id);
  const EpisodeKv* record = found == kv.end() ? nullptr : &found->second;
  uint32_t record_token = 0;
  if (record != nullptr) {
    for (uint32_t i = 0; i < piece.first && i < record->fact_tokens.size(); ++i) {
      record_token += record->fact_tokens[i];
    }
  }
  std::vector<Placed> out;
  for (uint32_t i = piece.first; i < piece.first + piece.count; ++i) {
    const Fact& fact = piece.episode->facts[i];
    INFERSCALE_ASSIGN(auto ids, tokens.Get(fact));
    // A record whose facts are not as long as today's is of other tokens: from there on not usable.
    if (record != nullptr && (i >= record->covered || i >= record->fact_tokens.size() ||
                              record->fact_tokens[i] != ids->size())) {
      record = nullptr;
    }
    const auto count = static_cast<uint32_t>(ids->size());
    out.push_back({&fact, std::move(ids), record, record_token});
    record_token += count;
  }
  return out;
}

// Facts with KV first, then those without; both in the order of the pieces.
Result<std::vector<Placed>> Place(std::span<const Piece> pieces,
                                  const std::unordered_map<int64_t, EpisodeKv>& kv,
                                  FactTokens& tokens) {
  std::vector<Placed> placed;
  for (const Piece& piece : pieces) {
    INFERSCALE_ASSIGN(std::vector<Placed> run, PlacePiece(piece, kv, tokens));
    placed.insert(placed.end(), std::make_move_iterator(run.begin()),
                  std::make_move_iterator(run.end()));
  }
  std::stable_partition(placed.begin(), placed.end(),
                        [](const Placed& p) { return p.kv != nullptr; });
  return placed;
}

// Adds a span, or lengthens the last one if it goes on in the same record.
void AddSpan(std::vector<KvSpan>& spans, const KvSpan& next) {
  if (!spans.empty()) {
    KvSpan& last = spans.back();
    if (last.key == next.key && last.first + last.tokens == next.first &&
        last.record_token + last.tokens == next.record_token) {
      last.tokens += next.tokens;
      return;
    }
  }
  spans.push_back(next);
}

}  // namespace

Result<Composition> Compose(const Opening& opening, std::span<const Piece> pieces,
                            std::span<const Token> tail,
                            const std::unordered_map<int64_t, EpisodeKv>& kv,
                            std::span<const SearchHit> hits, const ComposeOptions& options,
                            FactTokens& tokens) {
  INFERSCALE_ASSIGN(const std::vector<Placed> placed, Place(pieces, kv, tokens));
  std::unordered_map<int64_t, float> scores;
  for (const SearchHit& hit : hits) scores.emplace(hit.row, hit.score);

  Composition out;
  out.tokens.assign(opening.tokens.begin(), opening.tokens.end());
  if (!opening.key.IsZero()) {
    out.spans.push_back({0, static_cast<uint32_t>(opening.tokens.size()), 0, opening.key});
  }
  const size_t injectable = placed.size() - std::min<size_t>(placed.size(), options.plain_last);
  for (size_t i = 0; i < placed.size(); ++i) {
    const Placed& p = placed[i];
    const auto first = static_cast<uint32_t>(out.tokens.size());
    const auto count = static_cast<uint32_t>(p.tokens->size());
    const bool inject = p.kv != nullptr && i < injectable;
    if (inject) AddSpan(out.spans, {first, count, p.record_token, p.kv->key});
    const auto score = scores.find(p.fact->row);
    out.facts.push_back(
        {p.fact, first, count, score == scores.end() ? 0.0F : score->second, inject});
    out.tokens.insert(out.tokens.end(), p.tokens->begin(), p.tokens->end());
  }
  out.tokens.insert(out.tokens.end(), tail.begin(), tail.end());

  uint32_t kv_tokens = 0;
  for (const KvSpan& span : out.spans) kv_tokens += span.tokens;
  if (kv_tokens < options.min_kv_tokens) {
    out.spans.clear();
    for (ComposedFact& fact : out.facts) fact.injected = false;
  }
  return out;
}

}  // namespace inferscale
