// The quality gate over an engine whose logits are told how far injected KV and order lead astray.
#include "app/gate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <set>

#include "toy_models.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

struct Errors {
  bool has_logits = true;
  float order = 0.3F;                 // how much the prompt's tokens move a logit
  float kv = 0.0F;                    // how much injected spans do
  size_t kv_up_to = SIZE_MAX;         // in prompts of at most so many tokens
  std::vector<size_t> injected_into;  // tokens of every prompt with spans that was scored
};

// The next token of the continuation stands out; everything else is noise of the prompt.
class NoisyEngine final : public ToyEngine {
 public:
  NoisyEngine(const std::string& weights, std::shared_ptr<ToyLog> log,
              std::shared_ptr<Errors> errors)
      : ToyEngine(weights, std::move(log)), errors_(std::move(errors)) {}

  Result<std::vector<std::vector<float>>> Score(const Prompt& prompt,
                                                std::span<const Token> continuation,
                                                uint64_t session) override {
    if (!errors_->has_logits) return ToyEngine::Score(prompt, continuation, session);
    const bool injected = !prompt.spans.empty();
    if (injected) errors_->injected_into.push_back(prompt.tokens.size());
    const bool astray = injected && prompt.tokens.size() <= errors_->kv_up_to;
    const uint64_t order = HashBytes(std::as_bytes(std::span(prompt.tokens))).low;
    std::vector<std::vector<float>> out;
    for (size_t i = 0; i < continuation.size(); ++i) {
      std::mt19937_64 by_order(order + i);
      std::mt19937_64 by_kv(i);
      std::normal_distribution<float> of_order;
      std::normal_distribution<float> of_kv;
      std::vector<float>& logits = out.emplace_back(info().vocabulary);
      for (float& logit : logits) {
        logit = errors_->order * of_order(by_order);
        if (astray) logit += errors_->kv * of_kv(by_kv);
      }
      logits[static_cast<size_t>(continuation[i])] += 4;
    }
    return out;
  }

 private:
  std::shared_ptr<Errors> errors_;
};

class GateTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ =
        fs::temp_directory_path() / ("inferscale-gate-" + std::to_string(getpid()) + "-" +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir_);
    options_.data_dir = dir_.string();
    options_.arena_bytes = 16 << 20;
    options_.system = "sys";
    Reopen();
  }
  void TearDown() override {
    app_.reset();
    fs::remove_all(dir_);
  }
  void Reopen(const std::string& weights = "toy v1") {
    app_.reset();
    auto opened = OpenApp(options_, {std::make_unique<ToyEmbedder>(),
                                     std::make_unique<NoisyEngine>(weights, log_, errors_)});
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    app_ = std::move(*opened);
  }
  static GateVerdict Verdict(bool passed) {
    GateVerdict verdict;
    verdict.passed = passed;
    return verdict;
  }
  void Remember(int facts) {
    std::vector<Fact> list(static_cast<size_t>(facts));
    for (int i = 0; i < facts; ++i) {
      list[static_cast<size_t>(i)].scope.user = "ana";
      list[static_cast<size_t>(i)].text = "fact number " + std::to_string(i);
    }
    ASSERT_TRUE(app_->Add(list).has_value());
    ASSERT_TRUE(app_->EncodePending(nullptr, {}).has_value());
  }
  AskRequest Question(MemoryMode mode, uint32_t facts) const {
    AskRequest request;
    request.auto_facts = auto_facts_;
    request.scope.user = "ana";
    request.question = "which facts?";
    request.mode = mode;
    request.compose.facts = facts;
    return request;
  }
  MemoryMode ModeOf(MemoryMode mode, uint32_t facts = 20) {
    const auto answer = app_->Ask(Question(mode, facts), nullptr);
    EXPECT_TRUE(answer.has_value()) << (answer ? "" : answer.error().message);
    if (!answer) return MemoryMode::kAuto;
    EXPECT_EQ(answer->stats.injected_tokens > 0, answer->mode == MemoryMode::kKv);
    return answer->mode;
  }
  std::vector<GateMeasurement> RunAll() {
    auto measured = RunGate(*app_, nullptr, {});
    EXPECT_TRUE(measured.has_value()) << (measured ? "" : measured.error().message);
    return measured.value_or(std::vector<GateMeasurement>(1));
  }
  GateVerdict Run() { return RunAll().front().verdict; }

  fs::path dir_;
  AppOptions options_;
  std::optional<uint32_t> auto_facts_;
  std::shared_ptr<ToyLog> log_ = std::make_shared<ToyLog>();
  std::shared_ptr<Errors> errors_ = std::make_shared<Errors>();
  std::unique_ptr<App> app_;
};

TEST_F(GateTest, PassesWhatIsNearerThanAnotherOrder) {
  errors_->kv = 0.1F;
  const GateVerdict verdict = Run();
  EXPECT_TRUE(verdict.passed);
  EXPECT_GT(*verdict.kl, 0);
  EXPECT_LT(*verdict.kl, *verdict.noise_kl);
  EXPECT_GT(verdict.injected, 0.5);
  EXPECT_LT(verdict.injected, 1);
  EXPECT_EQ(verdict.questions, 12U);
  EXPECT_GT(verdict.positions, verdict.questions);
}

TEST_F(GateTest, SameNumbersAreNoDifference) {
  const GateVerdict verdict = Run();
  EXPECT_DOUBLE_EQ(*verdict.kl, 0);
  EXPECT_DOUBLE_EQ(verdict.agreement, 1);
  EXPECT_GT(*verdict.noise_kl, 0);
  EXPECT_EQ(log_->wrong_rows, 0U);
}

TEST_F(GateTest, FailsWhatIsFartherThanAnotherOrder) {
  errors_->kv = 2.0F;
  const GateVerdict verdict = Run();
  EXPECT_FALSE(verdict.passed);
  EXPECT_GT(*verdict.kl, *verdict.noise_kl);
  EXPECT_LT(verdict.agreement, verdict.noise_agreement);
}

TEST_F(GateTest, TheLimitsAreWhereTheySay) {
  GateVerdict verdict;
  verdict.kl = verdict.noise_kl = 0.1;
  verdict.noise_agreement = 0.80;
  verdict.agreement = GateAgreementLimit(verdict);
  EXPECT_TRUE(KeepsLimits(verdict));
  verdict.kl = 0.1001;
  EXPECT_FALSE(KeepsLimits(verdict));
  verdict.kl = verdict.noise_kl = std::nullopt;
  EXPECT_TRUE(KeepsLimits(verdict));
  verdict.agreement -= 0.001;
  EXPECT_FALSE(KeepsLimits(verdict));
}

// The toy's tokens follow from the prompt's tokens alone, so KV changes nothing and order much.
TEST_F(GateTest, WithoutLogitsOnlyTokensCount) {
  errors_->has_logits = false;
  const GateVerdict verdict = Run();
  EXPECT_TRUE(verdict.passed);
  EXPECT_FALSE(verdict.kl.has_value());
  EXPECT_FALSE(verdict.noise_kl.has_value());
  EXPECT_DOUBLE_EQ(verdict.agreement, 1);
  EXPECT_LT(verdict.noise_agreement, 0.5);
}

TEST_F(GateTest, LeavesNothingBehind) {
  Fact own;
  own.scope.user = "ana";
  own.text = "own fact";
  ASSERT_TRUE(app_->Add({&own, 1}).has_value());
  Run();
  const auto stopped = RunGate(*app_, [](size_t done, size_t) { return done < 2; }, {});
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
  const AppStats stats = app_->Stats().value();
  EXPECT_EQ(stats.facts.facts, 1U);
  EXPECT_EQ(stats.facts.users, 1U);
  EXPECT_EQ(stats.kv->records, 2U);  // the own fact's, and the header's
  EXPECT_TRUE(app_->Search(own.scope, "own fact", 5, nullptr).value().size() == 1);
}

TEST_F(GateTest, AutoHeedsTheVerdict) {
  auto_facts_ = 3;
  Remember(6);
  EXPECT_FALSE(app_->Verdict().value().has_value());
  EXPECT_EQ(ModeOf(MemoryMode::kAuto), MemoryMode::kKv);
  ASSERT_TRUE(app_->facts().PutVerdict(app_->VerdictId(), Verdict(true)).has_value());
  EXPECT_EQ(ModeOf(MemoryMode::kAuto), MemoryMode::kKv);
  ASSERT_TRUE(app_->facts().PutVerdict(app_->VerdictId(), Verdict(false)).has_value());
  EXPECT_EQ(ModeOf(MemoryMode::kAuto), MemoryMode::kText);
  for (const MemoryMode mode : {MemoryMode::kKv, MemoryMode::kText, MemoryMode::kNone}) {
    EXPECT_EQ(ModeOf(mode), mode);
  }
  Reopen();
  EXPECT_EQ(ModeOf(MemoryMode::kAuto), MemoryMode::kText);
}

TEST_F(GateTest, AutoComputesFewFacts) {
  auto_facts_ = 5;
  options_.episode_facts = 1;
  Reopen();
  Remember(6);
  EXPECT_EQ(ModeOf(MemoryMode::kAuto, 4), MemoryMode::kText);
  EXPECT_EQ(ModeOf(MemoryMode::kAuto, 5), MemoryMode::kKv);
  EXPECT_EQ(ModeOf(MemoryMode::kKv, 4), MemoryMode::kKv);
  // A later turn's facts stand behind what the conversation holds, however few they are.
  const auto conversation = app_->StartConversation();
  EXPECT_EQ(conversation->Ask(Question(MemoryMode::kAuto, 4), nullptr)->mode, MemoryMode::kText);
  EXPECT_EQ(conversation->Ask(Question(MemoryMode::kAuto, 4), nullptr)->mode, MemoryMode::kKv);
}

TEST_F(GateTest, MeasuresFewerFactsAsLongAsItPasses) {
  const auto sizes = [&] {
    std::vector<uint32_t> facts;
    for (const GateMeasurement& one : RunAll()) facts.push_back(one.facts);
    return facts;
  };
  EXPECT_EQ(sizes(), (std::vector<uint32_t>{20, 15, 10}));
  EXPECT_EQ(Run().least_facts, 10U);
  options_.compose.facts = 12;
  Reopen();
  EXPECT_EQ(sizes(), (std::vector<uint32_t>{12, 10}));
  options_.compose.facts = 8;
  Reopen();
  EXPECT_EQ(sizes(), std::vector<uint32_t>{8});
  EXPECT_EQ(Run().least_facts, 8U);
  options_.compose.facts = 50;
  Reopen();
  errors_->kv = 2.0F;
  EXPECT_EQ(sizes(), std::vector<uint32_t>{20});
  EXPECT_EQ(Run().least_facts, 0U);
}

// KV that leads astray in short prompts only.
TEST_F(GateTest, FindsFromHowManyFactsOnItPasses) {
  ASSERT_EQ(RunAll().size(), 3U);
  const std::vector<size_t>& lengths = errors_->injected_into;
  ASSERT_EQ(lengths.size(), 3U * 12);
  errors_->kv = 2.0F;
  errors_->kv_up_to = *std::max_element(lengths.end() - 12, lengths.end());  // of ten facts
  const std::vector<GateMeasurement> measured = RunAll();
  ASSERT_EQ(measured.size(), 3U);
  EXPECT_TRUE(measured[0].verdict.passed);
  EXPECT_TRUE(measured[1].verdict.passed);
  EXPECT_FALSE(measured[2].verdict.passed);
  EXPECT_EQ(measured[0].verdict.least_facts, 15U);
}

TEST_F(GateTest, AutoTakesTheFewestFactsThatPassed) {
  options_.episode_facts = 1;
  Reopen();
  Remember(20);
  EXPECT_EQ(ModeOf(MemoryMode::kAuto, kAutoFacts - 1), MemoryMode::kText);
  EXPECT_EQ(ModeOf(MemoryMode::kAuto, kAutoFacts), MemoryMode::kKv);
  GateVerdict verdict = Verdict(true);
  ASSERT_TRUE(app_->facts().PutVerdict(app_->VerdictId(), verdict).has_value());
  EXPECT_EQ(ModeOf(MemoryMode::kAuto, kAutoFacts - 1), MemoryMode::kText) << "not measured";
  verdict.least_facts = 10;
  ASSERT_TRUE(app_->facts().PutVerdict(app_->VerdictId(), verdict).has_value());
  EXPECT_EQ(ModeOf(MemoryMode::kAuto, 10), MemoryMode::kKv);
  EXPECT_EQ(ModeOf(MemoryMode::kAuto, 9), MemoryMode::kText);
  auto_facts_ = 12;
  EXPECT_EQ(ModeOf(MemoryMode::kAuto, 11), MemoryMode::kText) << "who says a number has it";
  EXPECT_EQ(ModeOf(MemoryMode::kAuto, 12), MemoryMode::kKv);
}

TEST_F(GateTest, AVerdictIsOfAModelAndItsSettings) {
  std::set<Hash128> ids = {app_->VerdictId()};
  const auto add = [&](const std::string& weights = "toy v1") {
    Reopen(weights);
    EXPECT_TRUE(ids.insert(app_->VerdictId()).second);
  };
  Reopen();
  EXPECT_TRUE(ids.contains(app_->VerdictId()));
  add("toy v2");
  options_.compose.plain_last = 9;
  add();
  options_.compose.facts = 5;
  add();
  options_.window = {WindowKind::kIsolated, {}};
  add();
  options_.episode_facts = 1;
  add();
  options_.system = "another";
  add();
  options_.kv_codec = KvCodec::kInt8;
  add();
}

TEST_F(GateTest, AVerdictIsKeptWhole) {
  const Hash128 id{7, 8};
  FactStore& store = app_->facts();
  const GateVerdict first{.passed = true,
                          .kl = 0.25,
                          .noise_kl = 0.5,
                          .agreement = 0.875,
                          .noise_agreement = 0.75,
                          .injected = 0.9,
                          .questions = 12,
                          .positions = 288,
                          .least_facts = 15,
                          .at_ms = 1700000000123};
  ASSERT_TRUE(store.PutVerdict(id, first).has_value());
  EXPECT_EQ(store.GetVerdict(id).value(), first);
  GateVerdict second = first;
  second.passed = false;
  second.kl = second.noise_kl = std::nullopt;
  ASSERT_TRUE(store.PutVerdict(id, second).has_value());
  EXPECT_EQ(store.GetVerdict(id).value(), second);
  EXPECT_FALSE(store.GetVerdict({7, 9}).value().has_value());
}

}  // namespace
}  // namespace inferscale
