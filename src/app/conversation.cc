// Conversations: turns appended to what the engine holds, so that nothing is read twice.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "app/app_impl.h"
#include "engine/read_answer.h"

namespace inferscale {
namespace {

// Fewer tokens are computed with the question as fast as a request more takes.
constexpr uint64_t kWorthWarming = 256;

uint64_t TokensOf(std::span<const PromptSpan> spans) {
  return std::accumulate(spans.begin(), spans.end(), uint64_t{0},
                         [](uint64_t sum, const PromptSpan& span) { return sum + span.tokens; });
}

}  // namespace

Result<bool> AppImpl::StillHolds(const HeldTurns& held) {
  std::vector<int64_t> rows;
  for (const auto& [row, version] : held.versions) rows.push_back(row);
  INFERSCALE_ASSIGN(const std::vector<Fact> facts, facts_->GetRows(rows));
  return facts.size() == rows.size() &&
         std::all_of(facts.begin(), facts.end(),
                     [&](const Fact& fact) { return held.versions.at(fact.row) == fact.version; });
}

Result<std::vector<Token>> AppImpl::NextOpening(const HeldTurns& held) const {
  std::vector<Token> tokens = held.tokens;
  const std::vector<Token> block = engine_->format().MemoryBlock(held.ended);
  tokens.insert(tokens.end(), block.begin(), block.end());
  const size_t over = tokens.size() % engine_->info().cache_block_tokens;
  if (over == 0) return tokens;
  INFERSCALE_ASSIGN(const std::vector<Token> line_end, engine_->format().Text("\n"));
  if (line_end.size() == 1) {
    tokens.insert(tokens.end(), engine_->info().cache_block_tokens - over, line_end.front());
  }
  return tokens;
}

void AppImpl::Warm(const HeldTurns& held, uint64_t session, const std::string& tenant) {
  const auto warmed = [&]() -> Status {
    INFERSCALE_ASSIGN(std::vector<Token> opening, NextOpening(held));
    Sampling one;
    one.max_tokens = 1;
    INFERSCALE_ASSIGN(const auto generation,
                      engine_->Start({{std::move(opening), held.spans}, one, session, tenant}));
    INFERSCALE_TRY(ReadAnswer(*generation));
    return {};
  };
  if (const Status status = warmed(); !status) {
    spdlog::debug("the next turn's beginning was not computed: {}", status.error().message);
  }
}

namespace {

class ConversationImpl final : public Conversation {
 public:
  ConversationImpl(AppImpl& app, uint64_t session) : app_(app), session_(session) {}
  ~ConversationImpl() override {
    AwaitWarming();
    app_.engine().EndSession(session_);
  }

  Result<Answer> Ask(const AskRequest& request, const OnPiece& on_piece) override {
    const Stopwatch since_question;
    if (!owner_) owner_ = {request.scope.tenant, request.scope.user};
    if (*owner_ != std::pair(request.scope.tenant, request.scope.user)) {
      return Fail(Code::kInvalid, "a conversation is of one tenant and user");
    }
    INFERSCALE_ASSIGN(const bool holds, app_.StillHolds(held_));
    auto prepared = app_.Prepare(request, holds ? &held_ : &kNothing);
    // A full context begins anew as well; what matters of the past is in memory.
    const bool full = !prepared && prepared.error().code == Code::kExhausted;
    if (holds && full && !held_.tokens.empty()) prepared = app_.Prepare(request, &kNothing);
    if (!prepared) return tl::unexpected(prepared.error());
    const bool restarted = !holds || full;
    AwaitWarming();
    if (restarted) {
      held_ = {};
      app_.engine().EndSession(session_);
    }
    const bool continued = !held_.tokens.empty();
    if (continued) WarmFor(*prepared, request);
    std::vector<Token> tokens = prepared->prompt.tokens;
    std::vector<PromptSpan> spans;
    if (app_.engine().info().stores_kv) spans = prepared->prompt.spans;
    std::vector<Token> generated;
    INFERSCALE_ASSIGN(Answer answer, app_.Generate(std::move(*prepared), request, session_,
                                                   since_question, on_piece, &generated));
    tokens.insert(tokens.end(), generated.begin(), generated.end());
    held_.tokens = std::move(tokens);
    held_.spans = std::move(spans);
    for (const UsedFact& used : answer.facts) {
      held_.versions[used.fact.row] = used.fact.version;
    }
    // A control token says nothing; the last one of a finished turn is the model's own end.
    held_.ended = answer.finish == FinishReason::kStop && !generated.empty() &&
                  app_.engine().Detokenize(std::span(generated).last(1)).empty();
    answer.restarted = restarted;
    is_warm_ = false;
    // Who has come back once comes again: the next turn's beginning is computed meanwhile.
    if (continued && NeedsWarming(request)) {
      is_warm_ = true;
      warming_ = std::jthread(
          [this, tenant = request.scope.tenant] { app_.Warm(held_, session_, tenant); });
    }
    return answer;
  }

  uint32_t tokens() const override { return static_cast<uint32_t>(held_.tokens.size()); }

 private:
  inline static const HeldTurns kNothing;

  bool NeedsWarming(const AskRequest& request) const {
    const bool kv = request.mode == MemoryMode::kKv || request.mode == MemoryMode::kAuto;
    return kv && app_.engine().info().cache_block_tokens > 1;
  }
  void AwaitWarming() {
    if (warming_.joinable()) warming_.join();
  }
  // Where it was not done yet and there is much to inject.
  void WarmFor(Prepared& prepared, const AskRequest& request) {
    const uint64_t fresh = TokensOf(prepared.prompt.spans) - TokensOf(held_.spans);
    if (is_warm_ || !NeedsWarming(request) || fresh < kWorthWarming) return;
    const Stopwatch watch;
    app_.Warm(held_, session_, request.scope.tenant);
    prepared.times.load_ms += watch.Ms();
  }

  AppImpl& app_;
  uint64_t session_;
  std::optional<std::pair<std::string, std::string>> owner_;  // tenant, user; of the first question
  HeldTurns held_;
  bool is_warm_ = false;  // the next turn's beginning is in the engine's cache, or soon
  std::jthread warming_;  // reads held_
};

}  // namespace

std::unique_ptr<Conversation> AppImpl::StartConversation() {
  return std::make_unique<ConversationImpl>(*this, next_session_++);
}

}  // namespace inferscale
