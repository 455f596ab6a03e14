#include <algorithm>
#include <unordered_set>
#include <utility>

#include "app/app_impl.h"
#include "engine/read_answer.h"
#include "memory/extraction.h"

namespace inferscale {
namespace {

constexpr uint32_t kAnswerTokens = 768;
constexpr size_t kMessageTokens = 1536;  // in one prompt
constexpr size_t kNearEach = 3;
constexpr size_t kNear = 12;

// How many of the messages, at least one, are read together.
Result<size_t> CountTogether(const PromptFormat& format, std::span<const Fact> messages,
                             size_t most_tokens) {
  size_t tokens = 0;
  for (size_t i = 0; i < std::min(messages.size(), kMessagesTogether); ++i) {
    INFERSCALE_ASSIGN(const std::vector<Token> line, format.Text(RenderFact(messages[i])));
    tokens += line.size();
    if (tokens > most_tokens) return std::max<size_t>(i, 1);
  }
  return std::min(messages.size(), kMessagesTogether);
}

// What the new facts share with the messages that they are drawn from: all but text and speaker.
Fact CommonOf(std::span<const Fact> messages) {
  Fact like = messages.front();
  like.text.clear();
  like.speaker.clear();
  for (const Fact& message : messages) like.when_ms = std::max(like.when_ms, message.when_ms);
  return like;
}

}  // namespace

Result<std::vector<InferredFact>> AppImpl::AddInferred(std::span<const Fact> messages) {
  if (engine_ == nullptr) {
    return Fail(Code::kUnsupported, "to draw facts from messages takes a language model");
  }
  for (size_t i = 1; i < messages.size(); ++i) {
    if (messages[i].scope != messages[0].scope) {
      return Fail(Code::kInvalid, "message {} is of another scope than those before", i);
    }
  }
  const size_t most_tokens = std::min<size_t>(kMessageTokens, engine_->info().context_tokens / 4);
  std::vector<InferredFact> out;
  while (!messages.empty()) {
    INFERSCALE_ASSIGN(const size_t count, CountTogether(engine_->format(), messages, most_tokens));
    const std::span<const Fact> batch = messages.first(count);
    INFERSCALE_ASSIGN(const std::vector<Fact> known, NearFacts(batch));
    INFERSCALE_ASSIGN(const std::vector<ExtractedFact> extracted, Extract(batch, known));
    const Fact like = CommonOf(batch);
    for (const ExtractedFact& fact : extracted) {
      INFERSCALE_ASSIGN(out.emplace_back(), Keep(fact, like, known));
    }
    messages = messages.subspan(count);
  }
  return out;
}

Result<std::vector<Fact>> AppImpl::NearFacts(std::span<const Fact> messages) {
  Scope scope = messages.front().scope;
  scope.run.clear();  // what was said in an earlier conversation can be corrected too
  std::vector<Fact> near;
  std::unordered_set<int64_t> rows;
  for (const Fact& message : messages) {
    INFERSCALE_ASSIGN(auto found, Search(scope, message.text, kNearEach, nullptr));
    for (SearchResult& one : found) {
      if (near.size() == kNear) return near;
      if (rows.insert(one.fact.row).second) near.push_back(std::move(one.fact));
    }
  }
  return near;
}

Result<std::vector<ExtractedFact>> AppImpl::Extract(std::span<const Fact> messages,
                                                    std::span<const Fact> known) {
  const PromptFormat& format = engine_->format();
  const ExtractionPrompt parts = MakeExtractionPrompt(messages, known);
  GenerateRequest request{.prompt = {}, .sampling = {}, .tenant = messages.front().scope.tenant};
  std::vector<Token>& tokens = request.prompt.tokens;
  INFERSCALE_ASSIGN(tokens, format.Header(parts.system));
  for (const std::string& line : parts.known) {
    INFERSCALE_ASSIGN(const std::vector<Token> ids, format.Text(line));
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  INFERSCALE_ASSIGN(const std::vector<Token> tail, format.Tail(parts.question));
  tokens.insert(tokens.end(), tail.begin(), tail.end());
  const size_t context = engine_->info().context_tokens;
  if (tokens.size() + 1 > context) {
    return Fail(Code::kInvalid, "the messages need a prompt of {} tokens, the context has {}",
                tokens.size(), context);
  }
  request.sampling.max_tokens =
      std::min<uint32_t>(kAnswerTokens, static_cast<uint32_t>(context - tokens.size()));
  request.sampling.grammar = ExtractionGrammar(known.size());

  INFERSCALE_ASSIGN(const auto generation, engine_->Start(std::move(request)));
  INFERSCALE_ASSIGN(const std::string answer, ReadAnswer(*generation));
  auto facts =
      ParseExtraction(answer, known.size(), generation->finish_reason() == FinishReason::kStop);
  if (!facts) return Fail(Code::kTransient, "draw facts from messages: {}", facts.error().message);
  return facts;
}

Result<InferredFact> AppImpl::Keep(const ExtractedFact& extracted, const Fact& like,
                                   std::span<const Fact> known) {
  const std::string& tenant = like.scope.tenant;
  if (extracted.replaces) {
    const Fact& old = known[*extracted.replaces];
    FactUpdate update;
    update.text = extracted.text;
    update.speaker = "";
    update.when_ms = like.when_ms;
    auto updated = Update(tenant, old.id, update);
    if (updated) return InferredFact{*std::move(updated), InferEvent::kUpdated, old.text};
    // It was deleted meanwhile: then there is nothing to replace.
    if (updated.error().code != Code::kNotFound) return tl::unexpected(std::move(updated).error());
  }
  Fact fact = like;
  fact.text = extracted.text;
  INFERSCALE_ASSIGN(const std::vector<AddResult> added, Add({&fact, 1}));
  INFERSCALE_ASSIGN(fact, facts_->Get(tenant, added[0].id));
  const bool is_new = added[0].event == AddEvent::kAdded;
  return InferredFact{std::move(fact), is_new ? InferEvent::kAdded : InferEvent::kDuplicate};
}

}  // namespace inferscale
