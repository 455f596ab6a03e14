#include "app/gate.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "app/app_impl.h"
#include "app/fidelity.h"
#include "app/gate_text.h"
#include "engine/read_answer.h"

namespace inferscale {
namespace {

// No key is of this tenant, so nobody else's facts stand there.
constexpr std::string_view kTenant = "inferscale verify";
constexpr int64_t kFirstDay = 1709251200000;  // 1 March 2024
constexpr int64_t kDayMs = 86'400'000;
constexpr uint32_t kAnswerTokens = 24;
constexpr int kShuffles = 2;  // of each question's facts

uint32_t MeasuredFacts(uint32_t most_facts) { return std::min(most_facts, kGateFacts.front()); }

Scope GateScope() { return {std::string(kTenant), "verify", "", ""}; }

std::vector<Fact> GateFacts() {
  std::vector<Fact> facts;
  for (const GateTurn& turn : kGateTurns) {
    Fact& fact = facts.emplace_back();
    fact.scope = GateScope();
    fact.scope.run = turn.run;
    fact.speaker = turn.speaker;
    fact.when_ms = kFirstDay + int64_t{turn.day} * kDayMs;
    fact.text = turn.text;
  }
  return facts;
}

// The set is nobody's memory: gone again, whatever comes of the measurement.
class Visit {
 public:
  explicit Visit(App& app) : app_(app) {}
  ~Visit() {
    if (const auto left = app_.DeleteScope(GateScope()); !left) {
      spdlog::warn("the set of facts for verifying stays: {}", left.error().message);
    }
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  Status Fill(const std::stop_token& stop) {
    INFERSCALE_TRY(app_.DeleteScope(GateScope()));  // what a kill has left
    INFERSCALE_TRY(app_.Add(GateFacts()));
    INFERSCALE_TRY(app_.EncodePending(nullptr, stop));
    return {};
  }

 private:
  App& app_;
};

// What a model says at each position of an answer behind a prompt.
struct Reading {
  Logits logits;  // empty if the engine gives none
  std::vector<Token> top;
};

// Sums over positions.
struct Sums {
  double kl = 0;
  uint32_t same = 0;
  uint32_t positions = 0;

  double Kl() const { return positions == 0 ? 0 : kl / positions; }
  double Agreement() const { return positions == 0 ? 0 : static_cast<double>(same) / positions; }
};

// With one number of facts in a prompt.
class Measurement {
 public:
  // `sessions` numbers sequences of the engine, and goes on.
  Measurement(App& app, uint32_t facts, uint64_t& sessions)
      : app_(app), engine_(app.engine()), facts_(facts), sessions_(sessions) {}

  Status Question(std::string_view question) {
    INFERSCALE_ASSIGN(const Composed text, Compose(question, MemoryMode::kText));
    INFERSCALE_ASSIGN(const Composed kv, Compose(question, MemoryMode::kKv));
    if (text.prompt.tokens != kv.prompt.tokens) {
      return Fail(Code::kInternal, "the prompts with and without KV differ");
    }
    for (const PromptSpan& span : kv.prompt.spans) injected_ += span.tokens;
    prompt_ += kv.prompt.tokens.size();

    // The sequence is kept until the reference's logits are read: its prompt is computed once.
    const uint64_t session = ++sessions_;
    INFERSCALE_ASSIGN(const std::vector<Token> answer, Answer(text.prompt, session));
    auto reference = Read(text.prompt, answer, session);
    engine_.EndSession(session);
    INFERSCALE_TRY(reference);
    INFERSCALE_TRY(Compare(*reference, kv.prompt, answer, kv_));
    INFERSCALE_ASSIGN(const auto tail, engine_.format().Tail(question));
    for (int i = 0; i < kShuffles; ++i) {
      const Prompt shuffled = ShuffleEpisodes(text.prompt, text.facts, tail.size(), random_);
      INFERSCALE_TRY(Compare(*reference, shuffled, answer, noise_));
    }
    ++questions_;
    return {};
  }

  Result<GateVerdict> Verdict() const {
    if (injected_ == 0) {
      return Fail(Code::kTransient, "no KV was injected: the set of facts was not encoded");
    }
    GateVerdict out;
    if (has_logits_) {
      out.kl = kv_.Kl();
      out.noise_kl = noise_.Kl();
    }
    out.agreement = kv_.Agreement();
    out.noise_agreement = noise_.Agreement();
    out.injected = static_cast<double>(injected_) / static_cast<double>(prompt_);
    out.questions = questions_;
    out.positions = kv_.positions;
    out.passed = KeepsLimits(out);
    return out;
  }

 private:
  struct Composed {
    Prompt prompt;
    std::vector<UsedFact> facts;
  };

  Result<Composed> Compose(std::string_view question, MemoryMode mode) {
    AskRequest ask;
    ask.scope = GateScope();
    ask.question = question;
    ask.mode = mode;
    ask.compose = app_.options().compose;
    ask.compose.facts = facts_;
    ask.sampling.max_tokens = kAnswerTokens;
    Composed composed;
    INFERSCALE_ASSIGN(composed.prompt, app_.ComposePrompt(ask, &composed.facts, nullptr));
    return composed;
  }

  Result<std::vector<Token>> Answer(const Prompt& prompt, uint64_t session,
                                    uint32_t max_tokens = kAnswerTokens) {
    GenerateRequest request{.prompt = prompt, .sampling = {}, .session = session};
    request.sampling.max_tokens = max_tokens;
    request.tenant = kTenant;
    INFERSCALE_ASSIGN(const auto generation, engine_.Start(std::move(request)));
    INFERSCALE_TRY(ReadAnswer(*generation));
    return generation->tokens();
  }

  Result<Reading> Read(const Prompt& prompt, const std::vector<Token>& answer, uint64_t session) {
    Reading reading;
    auto logits = engine_.Score(prompt, answer, session);
    if (logits) {
      reading.logits = *std::move(logits);
      for (const std::vector<float>& row : reading.logits) reading.top.push_back(MostLikely(row));
      return reading;
    }
    if (logits.error().code != Code::kUnsupported) return tl::unexpected(logits.error());
    has_logits_ = false;
    Prompt longer = prompt;
    for (const Token token : answer) {
      INFERSCALE_ASSIGN(const std::vector<Token> next, Answer(longer, /*session=*/0, 1));
      reading.top.push_back(next.empty() ? Token{-1} : next.front());
      longer.tokens.push_back(token);
    }
    return reading;
  }

  Status Compare(const Reading& reference, const Prompt& prompt, const std::vector<Token>& answer,
                 Sums& sums) {
    const uint64_t session = ++sessions_;
    const auto reading = Read(prompt, answer, session);
    engine_.EndSession(session);
    INFERSCALE_TRY(reading);
    for (size_t i = 0; i < answer.size(); ++i) {
      if (has_logits_) sums.kl += KlDivergence(reference.logits[i], reading->logits[i]);
      sums.same += reference.top[i] == reading->top[i] ? 1 : 0;
    }
    sums.positions += static_cast<uint32_t>(answer.size());
    return {};
  }

  App& app_;
  Engine& engine_;
  const uint32_t facts_;
  uint64_t& sessions_;
  std::mt19937_64 random_{kGateText};  // the same shuffles every time
  bool has_logits_ = true;
  uint32_t questions_ = 0;
  uint64_t prompt_ = 0;
  uint64_t injected_ = 0;
  Sums kv_;
  Sums noise_;
};

// Downwards.
std::vector<uint32_t> SizesFor(uint32_t most_facts) {
  std::vector<uint32_t> sizes = {MeasuredFacts(most_facts)};
  for (const uint32_t facts : kGateFacts) {
    if (facts < sizes.front()) sizes.push_back(facts);
  }
  return sizes;
}

}  // namespace

double GateKlLimit(const GateVerdict& verdict) {
  return kGateKlOfNoise * verdict.noise_kl.value_or(0);
}

double GateAgreementLimit(const GateVerdict& verdict) {
  return verdict.noise_agreement - kGateAgreementMargin;
}

bool KeepsLimits(const GateVerdict& verdict) {
  return (!verdict.kl || *verdict.kl <= GateKlLimit(verdict)) &&
         verdict.agreement >= GateAgreementLimit(verdict);
}

Result<std::vector<GateMeasurement>> RunGate(App& app, const OnGateProgress& on_progress,
                                             const std::stop_token& stop) {
  const ModelInfo& model = app.engine().info();
  if (!model.injection) {
    return Fail(Code::kUnsupported, "the model takes no KV: {}", model.self_test.summary);
  }
  Visit visit(app);
  INFERSCALE_TRY(visit.Fill(stop));
  const std::vector<uint32_t> sizes = SizesFor(app.options().compose.facts);
  const size_t total = sizes.size() * kGateQuestions.size();
  uint64_t sessions = uint64_t{1} << 62;  // beyond those of the application
  size_t done = 0;
  std::vector<GateMeasurement> measured;
  for (const uint32_t facts : sizes) {
    Measurement measurement(app, facts, sessions);
    for (const std::string_view question : kGateQuestions) {
      const bool go_on = !on_progress || on_progress(done++, total);
      if (!go_on || stop.stop_requested()) return Fail(Code::kCancelled, "interrupted");
      INFERSCALE_TRY(measurement.Question(question));
    }
    INFERSCALE_ASSIGN(GateVerdict verdict, measurement.Verdict());
    verdict.at_ms = SystemClock().NowMs();
    measured.push_back({facts, verdict});
    if (!verdict.passed) break;
    measured.front().verdict.least_facts = facts;
  }
  return measured;
}

// ---- what it was measured for -------------------------------------------------------------------

Hash128 AppImpl::VerdictId() const {
  return Hasher()
      .Add("verdict")
      .Add(kGateText)
      .Add(codec_->fingerprint())
      .Add(encoding_)
      .Add(uint64_t{options_.episode_facts})
      .Add(uint64_t{options_.compose.plain_last})
      .Add(uint64_t{MeasuredFacts(options_.compose.facts)})
      .Digest();
}

Result<std::optional<GateVerdict>> AppImpl::Verdict() {
  INFERSCALE_TRY(NeedAtLeast(Need::kAnswer, "Verdict"));
  return facts_->GetVerdict(VerdictId());
}

}  // namespace inferscale
