// An engine that heals: what a session holds as injected KV becomes what full prefill gives.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "engine_world.h"

namespace inferscale {
namespace {

class HealerTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    plain_ = engine_;
    healing_ = MakeRandomEngine(GetParam().spec, {.heal = true});
    ASSERT_NE(healing_, nullptr);
  }
  void TearDown() override {
    engine_ = plain_;
    healing_.reset();
  }

  // Two facts, each encoded alone, so that the second one's KV has not seen the first.
  Prompt Injected() {
    Prompt prompt;
    for (int i = 0; i < 2; ++i) {
      const std::vector<Token> fact = Tokens(40);
      records_.push_back(std::move(Encode({}, fact, {40})[0]));
      prompt.tokens.insert(prompt.tokens.end(), fact.begin(), fact.end());
    }
    for (uint32_t i = 0; i < 2; ++i) {
      prompt.spans.push_back(SpanAt(40 * i, records_[records_.size() - 2 + i]));
    }
    const std::vector<Token> tail = Tokens(6);
    prompt.tokens.insert(prompt.tokens.end(), tail.begin(), tail.end());
    return prompt;
  }

  // A session's second turn, behind its first one and the answer to that.
  Prompt Next(const Prompt& first, const Answer& answer) {
    Prompt next{.tokens = first.tokens, .spans = first.spans};
    next.tokens.insert(next.tokens.end(), answer.tokens.begin(), answer.tokens.end());
    const std::vector<Token> question = Tokens(7);
    next.tokens.insert(next.tokens.end(), question.begin(), question.end());
    return next;
  }

  // How far the session's next token is from that of a full computation.
  double Error(const Prompt& prompt, uint64_t session) {
    const std::vector<Token> any = {1};
    const auto logits = engine_->Score(prompt, any, session);
    const auto exact = engine_->Score({.tokens = prompt.tokens, .spans = {}}, any, 0);
    EXPECT_TRUE(logits && exact);
    return logits && exact ? Difference(*logits, *exact) : 1e9;
  }

  std::unique_ptr<Engine> healing_;
  Engine* plain_ = nullptr;
  std::vector<EncodedRecord> records_;
};

TEST_P(HealerTest, TheNextTurnStandsOnWhatFullPrefillGives) {
  const Prompt first = Injected();
  const auto second_turn = [&](Engine& engine, std::chrono::milliseconds rest) {
    engine_ = &engine;
    const Answer one = Generate(Request(first, 8, 7));
    EXPECT_EQ(one.stats.injected_tokens, 80U);
    std::this_thread::sleep_for(rest);
    const Prompt next = Next(first, one);
    // Nothing of what the session held is read again for the question.
    const Answer two = Generate(Request(next, 1, 7));
    EXPECT_EQ(two.stats.cached_tokens, first.tokens.size() + 7);
    const double error = Error(Next(next, two), 7);
    engine.EndSession(7);
    return error;
  };
  const double astray = second_turn(*plain_, std::chrono::milliseconds(0));
  ASSERT_GT(astray, 10 * kNoise) << "injected KV is exact here, so this test would prove nothing";
  // However long the machine takes to come to it.
  double healed = astray;
  for (int wait_ms = 50; wait_ms < 20'000 && healed >= kNoise; wait_ms *= 2) {
    healed = second_turn(*healing_, std::chrono::milliseconds(wait_ms));
  }
  EXPECT_LT(healed, kNoise);
}

TEST_P(HealerTest, RequestsInBetweenFindWhatTheyWouldHaveFound) {
  engine_ = healing_.get();
  std::vector<Prompt> turns = {Injected(), Injected()};
  std::vector<size_t> held(2, 0);
  for (int round = 0; round < 60; ++round) {
    const uint64_t which = random_() % 2;
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 4000));
    if (random_() % 8 == 0) {
      healing_->EndSession(20 + which);
      held[which] = 0;
    }
    if (turns[which].tokens.size() > kRandomContext - 100) continue;
    const Answer answer = Generate(Request(turns[which], 4, 20 + which));
    ASSERT_EQ(answer.tokens.size(), 4U);
    EXPECT_EQ(answer.stats.cached_tokens, held[which]) << "round " << round;
    held[which] = turns[which].tokens.size() + 3;  // the last one was not read
    turns[which] = Next(turns[which], answer);
  }
  // Without sessions, and with plain prompts, nothing is to be healed.
  const Prompt plain{.tokens = Tokens(30), .spans = {}};
  ExpectGreedy(plain, Generate(Request(plain, 5, 30)).tokens);
  ExpectGreedy(plain, Generate(Request(plain, 5)).tokens);
}

TEST_P(HealerTest, EncodingGoesFirst) {
  engine_ = healing_.get();
  Generate(Request(Injected(), 2, 7));
  for (int i = 0; i < 10; ++i) {
    const std::vector<Token> fact = Tokens(50);
    const EncodedRecord record = std::move(Encode({}, fact, {50})[0]);
    engine_ = plain_;
    ExpectClose(record, Encode({}, fact, {50})[0]);
    engine_ = healing_.get();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HealerTest, testing::ValuesIn(kModels), NameOfModel);

}  // namespace
}  // namespace inferscale
