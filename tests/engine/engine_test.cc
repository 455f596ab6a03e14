// What every Engine promises (engine.h), here on the embedded engine.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "engine_world.h"

namespace inferscale {
namespace {

TEST_P(EngineTest, CompositionOfOnePrefillGivesItsLogits) {
  const std::vector<Token> all = Tokens(120);
  const std::vector<Token> tail = Tokens(9);
  const std::vector<Token> continuation = Tokens(40);
  const auto records = Encode({}, all, {20, 31, 69});
  ASSERT_EQ(records.size(), 3U);

  Prompt plain;
  plain.tokens = all;
  plain.tokens.insert(plain.tokens.end(), tail.begin(), tail.end());
  Prompt composed = plain;
  composed.spans = {SpanAt(0, records[0]), SpanAt(20, records[1]), SpanAt(51, records[2])};

  const auto expected = engine_->Score(plain, continuation, 0);
  const auto actual = engine_->Score(composed, continuation, 0);
  ASSERT_TRUE(expected && actual);
  EXPECT_EQ(expected->size(), continuation.size());
  const double difference = Difference(*expected, *actual);
  EXPECT_LT(difference, kNoise);
  EXPECT_GT(difference, 0) << "was anything injected?";
  RecordProperty("difference", std::to_string(difference));

  const Answer a = Generate(Request(plain, 12));
  const Answer b = Generate(Request(composed, 12));
  ExpectGreedy(plain, a.tokens);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.stats.prefilled_tokens, 129U);
  EXPECT_EQ(b.stats.injected_tokens, 120U);
  EXPECT_EQ(b.stats.prefilled_tokens, 9U);
  EXPECT_EQ(b.stats.prompt_tokens, 129U);
  EXPECT_EQ(b.stats.generated_tokens, 12U);
  EXPECT_EQ(b.reason, FinishReason::kLength);
}

// Spans with plain tokens before, between and after, and a part of a record.
TEST_P(EngineTest, SpansAndPlainTokensMix) {
  const std::vector<Token> all = Tokens(100);
  const std::vector<Token> continuation = Tokens(3);
  const auto records = Encode({}, all, {100});
  ASSERT_EQ(records.size(), 1U);
  Prompt plain{.tokens = all, .spans = {}};
  Prompt mixed = plain;
  const auto part = [&](uint32_t first, uint32_t tokens) {
    PromptSpan span = SpanAt(first, records[0]);
    span.tokens = tokens;
    span.record_token = first;
    return span;
  };
  mixed.spans = {part(5, 20), part(25, 5), part(40, 30), part(90, 9)};
  const auto expected = engine_->Score(plain, continuation, 0);
  const auto actual = engine_->Score(mixed, continuation, 0);
  ASSERT_TRUE(expected && actual);
  EXPECT_LT(Difference(*expected, *actual), kNoise);
  const Answer answer = Generate(Request(mixed, 4));
  EXPECT_EQ(answer.stats.injected_tokens, 64U);
  EXPECT_EQ(answer.stats.prefilled_tokens, 36U);
  ExpectGreedy(plain, answer.tokens);
}

// Records don't depend on how the engine that takes them computes.
TEST_P(EngineTest, FlashAttentionGivesTheSameLogits) {
  const auto other = MakeRandomEngine(GetParam().spec, {.flash_attention = FlashAttention::kOn});
  ASSERT_NE(other, nullptr);
  ASSERT_TRUE(other->info().injection) << other->info().self_test.summary;
  EXPECT_EQ(other->info().fingerprint, engine_->info().fingerprint);
  const std::vector<Token> all = Tokens(120);
  const std::vector<Token> continuation = Tokens(10);
  const auto records = Encode({}, all, {50, 60});
  ASSERT_EQ(records.size(), 2U);
  const Prompt plain{.tokens = all, .spans = {}};
  Prompt composed = plain;
  composed.spans = {SpanAt(0, records[0]), SpanAt(50, records[1])};
  const auto expected = engine_->Score(plain, continuation, 0);
  const auto actual = other->Score(composed, continuation, 0);
  ASSERT_TRUE(expected && actual);
  const double difference = Difference(*expected, *actual);
  EXPECT_LT(difference, kFlashAttentionNoise);
  EXPECT_GT(difference, 0) << "was it on?";
}

TEST_P(EngineTest, ShortQuestionAfterManyFacts) {
  const std::vector<Token> facts = Tokens(1000);
  const std::vector<Token> tail = Tokens(9);
  const auto records = Encode({}, facts, {1000});
  ASSERT_EQ(records.size(), 1U);
  Prompt prompt{.tokens = facts, .spans = {SpanAt(0, records[0])}};
  prompt.tokens.insert(prompt.tokens.end(), tail.begin(), tail.end());
  const Answer answer = Generate(Request(prompt, 8, 9));
  EXPECT_EQ(answer.stats.injected_tokens, 1000U);
  EXPECT_EQ(answer.stats.prefilled_tokens, 9U);
  ExpectGreedy(prompt, answer.tokens);
  const Answer again = Generate(Request(prompt, 8, 9));
  EXPECT_EQ(again.stats.cached_tokens, Kept(1008, 1016));
  ExpectGreedy(prompt, again.tokens);
  engine_->EndSession(9);
}

// One computation of the prompt serves its answer and any number of continuations.
TEST_P(EngineTest, ASessionScoresContinuationsOfOnePrompt) {
  const std::vector<Token> facts = Tokens(60);
  const auto records = Encode({}, facts, {60});
  ASSERT_EQ(records.size(), 1U);
  Prompt prompt{.tokens = facts, .spans = {SpanAt(0, records[0])}};
  const std::vector<Token> tail = Tokens(30);
  prompt.tokens.insert(prompt.tokens.end(), tail.begin(), tail.end());
  constexpr uint64_t kSession = 12;
  const Answer first = Generate(Request(prompt, 8, kSession));
  for (const size_t length : {5, 1, 40}) {
    const std::vector<Token> continuation = Tokens(length);
    const auto expected = engine_->Score(prompt, continuation, 0);
    const auto actual = engine_->Score(prompt, continuation, kSession);
    ASSERT_TRUE(expected && actual);
    EXPECT_EQ(actual->size(), length);
    EXPECT_LT(Difference(*expected, *actual), kNoise);
  }
  const Answer again = Generate(Request(prompt, 8, kSession));
  EXPECT_EQ(again.stats.cached_tokens, Kept(89, 129));
  EXPECT_EQ(again.tokens, first.tokens);
  engine_->EndSession(kSession);
}

// What a record holds must not depend on its company in the batch.
TEST_P(EngineTest, ItemsOfOneBatchEqualEachAlone) {
  const std::vector<Token> prefix = Tokens(33);
  EncodeRequest request{.prefix = prefix, .items = {}};
  for (const size_t length : {7, 50, 1, 23, 300, 12}) {
    const auto tokens = Tokens(length);
    const auto count = static_cast<uint32_t>(length);
    request.items.push_back({.tokens = tokens, .captures = {{0, count}, {count - 1, 1}}});
  }
  const auto together = engine_->Encode(request);
  ASSERT_TRUE(together) << together.error().message;
  EXPECT_EQ(together->computed_tokens, 33U + 393U);
  for (size_t i = 0; i < request.items.size(); ++i) {
    const auto alone = engine_->Encode({.prefix = prefix, .items = {request.items[i]}});
    ASSERT_TRUE(alone);
    EXPECT_EQ(alone->computed_tokens, request.items[i].tokens.size()) << "the prefix is kept";
    for (size_t capture = 0; capture < 2; ++capture) {
      SCOPED_TRACE("item " + std::to_string(i));
      ExpectClose(together->records[i][capture], alone->records[0][capture]);
    }
  }
}

TEST_P(EngineTest, PrefixIsComputedOnlyWhereItChanged) {
  const std::vector<Token> prefix = Tokens(40);
  std::vector<Token> changed = prefix;
  changed[30] = (changed[30] + 1) % static_cast<Token>(kRandomVocabulary);
  const EncodeItem item{.tokens = Tokens(5), .captures = {}};
  const auto computed = [&](const std::vector<Token>& tokens) {
    const auto result = engine_->Encode({.prefix = tokens, .items = {item}});
    return result ? result->computed_tokens : 0;
  };
  EXPECT_EQ(computed(prefix), 45U);
  EXPECT_EQ(computed(prefix), 5U);
  EXPECT_EQ(computed(changed), 15U);
  EXPECT_EQ(computed({changed.begin(), changed.begin() + 10}), 5U);
  EXPECT_EQ(computed({}), 5U);
}

// A prefix that changes after it has grown past a window: what stays of it must be whole.
TEST_P(EngineTest, AChangedLongPrefixEncodesAsAFreshOne) {
  const std::vector<Token> prefix = Tokens(400);
  std::vector<Token> changed = prefix;
  changed.resize(150);
  const EncodeItem item{.tokens = Tokens(30), .captures = {{0, 30}}};
  const auto fresh = engine_->Encode({.prefix = changed, .items = {item}});
  ASSERT_TRUE(fresh);
  // Its items may take cells in which the prefix was, where that has left the window.
  EncodeRequest filling{.prefix = prefix, .items = {}};
  for (int i = 0; i < 16; ++i) filling.items.push_back({.tokens = Tokens(100), .captures = {}});
  ASSERT_TRUE(engine_->Encode(filling));
  const auto again = engine_->Encode({.prefix = changed, .items = {item}});
  ASSERT_TRUE(again);
  EXPECT_EQ(again->computed_tokens, 30U + (Kept(150, 400) == 150 ? 0 : 150));
  ExpectClose(again->records[0][0], fresh->records[0][0]);
}

TEST_P(EngineTest, FourAtATimeAnswerAsEachAlone) {
  std::vector<Prompt> prompts;
  std::vector<EncodedRecord> records;
  for (int i = 0; i < 4; ++i) {
    const std::vector<Token> fact = Tokens(30 + 11 * static_cast<size_t>(i));
    records.push_back(Encode({}, fact, {static_cast<uint32_t>(fact.size())})[0]);
    Prompt prompt{.tokens = fact, .spans = {}};
    const auto tail = Tokens(5 + 40 * static_cast<size_t>(i));
    prompt.tokens.insert(prompt.tokens.end(), tail.begin(), tail.end());
    prompts.push_back(prompt);
  }
  for (int i = 0; i < 3; ++i) {  // the last one has no spans
    prompts[static_cast<size_t>(i)].spans = {SpanAt(0, records[static_cast<size_t>(i)])};
  }
  std::vector<std::unique_ptr<Generation>> running;
  for (const Prompt& prompt : prompts) {
    auto generation = engine_->Start(Request(prompt, 20));
    ASSERT_TRUE(generation);
    running.push_back(std::move(*generation));
  }
  for (size_t i = 0; i < running.size(); ++i) {
    const auto answer = ReadAll(*running[i]);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->tokens.size(), 20U);
    ExpectGreedy(prompts[i], answer->tokens);
  }
}

TEST_P(EngineTest, SecondTurnWithNewFactsEqualsAFullComputation) {
  const std::vector<Token> first = Tokens(50);
  const std::vector<Token> tail = Tokens(6);
  Prompt prompt{.tokens = first, .spans = {}};
  const auto first_record = Encode({}, first, {50});
  prompt.spans = {SpanAt(0, first_record[0])};
  prompt.tokens.insert(prompt.tokens.end(), tail.begin(), tail.end());
  const Answer one = Generate(Request(prompt, 8, 77));
  ASSERT_EQ(one.tokens.size(), 8U);

  // The second turn: all of the first, what was generated, a block, new facts, the next tail.
  Prompt next{.tokens = prompt.tokens, .spans = {}};
  next.tokens.insert(next.tokens.end(), one.tokens.begin(), one.tokens.end());
  const std::vector<Token> block = Tokens(3);
  next.tokens.insert(next.tokens.end(), block.begin(), block.end());
  const std::vector<Token> before = next.tokens;
  const std::vector<Token> fact = Tokens(25);
  const auto record = Encode(before, fact, {25});
  next.tokens.insert(next.tokens.end(), fact.begin(), fact.end());
  next.tokens.insert(next.tokens.end(), tail.begin(), tail.end());
  const Prompt plain = next;
  next.spans = {SpanAt(0, first_record[0]),
                SpanAt(static_cast<uint32_t>(before.size()), record[0])};

  const Answer two = Generate(Request(next, 10, 77));
  // The last token generated was never put into the cache.
  EXPECT_EQ(two.stats.cached_tokens, 56U + 7U);
  EXPECT_EQ(two.stats.injected_tokens, 25U);
  EXPECT_EQ(two.stats.prefilled_tokens, 1U + 3U + 6U);
  ExpectGreedy(plain, two.tokens);

  // Asked again, all but the last token is there.
  const Answer again = Generate(Request(next, 10, 77));
  EXPECT_EQ(again.stats.cached_tokens, Kept(next.tokens.size() - 1, next.tokens.size() + 9));
  ExpectGreedy(plain, again.tokens);

  engine_->EndSession(77);
  const Answer forgotten = Generate(Request(next, 10, 77));
  EXPECT_EQ(forgotten.stats.cached_tokens, 0U);
  ExpectGreedy(plain, forgotten.tokens);
  engine_->EndSession(77);
}

TEST_P(EngineTest, SessionThatDivergesKeepsTheCommonPart) {
  Prompt prompt{.tokens = Tokens(30), .spans = {}};
  Generate(Request(prompt, 4, 5));
  prompt.tokens[20] = (prompt.tokens[20] + 1) % static_cast<Token>(kRandomVocabulary);
  const Answer answer = Generate(Request(prompt, 4, 5));
  EXPECT_EQ(answer.stats.cached_tokens, 20U);
  ExpectGreedy(prompt, answer.tokens);
  engine_->EndSession(5);
}

TEST_P(EngineTest, SessionThatRestedLongestMakesRoom) {
  std::vector<Prompt> prompts;
  for (uint64_t session = 100; session < 105; ++session) {  // one more than there are slots
    prompts.push_back({.tokens = Tokens(12), .spans = {}});
    Generate(Request(prompts.back(), 1, session));
  }
  EXPECT_EQ(Generate(Request(prompts[1], 1, 101)).stats.cached_tokens, 11U);
  EXPECT_EQ(Generate(Request(prompts[0], 1, 100)).stats.cached_tokens, 0U);
  for (uint64_t session = 100; session < 105; ++session) engine_->EndSession(session);
}

TEST_P(EngineTest, CancelEndsAGeneration) {
  auto generation = engine_->Start(Request({.tokens = Tokens(10), .spans = {}}, 2000));
  ASSERT_TRUE(generation);
  (*generation)->Cancel();
  const auto answer = ReadAll(**generation);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->reason, FinishReason::kCancelled);
  EXPECT_LT(answer->tokens.size(), 2000U);
}

TEST_P(EngineTest, WhatWaitsForASlotCanBeStopped) {
  std::vector<std::unique_ptr<Generation>> running;
  for (int i = 0; i < 4; ++i) {  // in all slots
    running.push_back(engine_->Start(Request({.tokens = Tokens(10), .spans = {}}, 2000)).value());
  }
  std::stop_source stop;
  GenerateRequest request = Request({.tokens = Tokens(10), .spans = {}}, 5);
  request.stop = stop.get_token();
  auto generation = engine_->Start(std::move(request));
  ASSERT_TRUE(generation);
  std::jthread stopper([&] { stop.request_stop(); });
  const auto answer = ReadAll(**generation);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->reason, FinishReason::kCancelled);
  EXPECT_TRUE(answer->tokens.empty());
  for (const auto& other : running) other->Cancel();
}

TEST_P(EngineTest, DroppedGenerationsFreeTheirSlots) {
  for (int i = 0; i < 20; ++i) {
    auto generation = engine_->Start(Request({.tokens = Tokens(10), .spans = {}}, 2000));
    // Slots and queue are full only until the engine has noticed those that were dropped.
    while (!generation && generation.error().code == Code::kExhausted) {
      std::this_thread::yield();
      generation = engine_->Start(Request({.tokens = Tokens(10), .spans = {}}, 2000));
    }
    ASSERT_TRUE(generation);
  }
  EXPECT_EQ(Generate(Request({.tokens = Tokens(10), .spans = {}}, 3)).tokens.size(), 3U);
}

TEST_P(EngineTest, FullQueueIsAnError) {
  std::vector<std::unique_ptr<Generation>> running;
  bool exhausted = false;
  for (int i = 0; i < 4 + 8 + 2 && !exhausted; ++i) {
    auto generation = engine_->Start(Request({.tokens = Tokens(4), .spans = {}}, 2000));
    if (generation) {
      running.push_back(std::move(*generation));
    } else {
      exhausted = true;
      EXPECT_EQ(generation.error().code, Code::kExhausted);
    }
  }
  EXPECT_TRUE(exhausted);
}

TEST_P(EngineTest, NothingJoinsAQueueThatHasNotMovedForLong) {
  const auto other =
      MakeRandomEngine(GetParam().spec, {.slots = 1, .queue_wait = std::chrono::milliseconds(100)});
  ASSERT_NE(other, nullptr);
  const auto start = [&](uint32_t tokens) {
    return other->Start(Request({.tokens = Tokens(4), .spans = {}}, tokens));
  };
  auto running = start(2000);
  const auto first = start(2000);
  const auto second = start(2000);
  ASSERT_TRUE(running && first && second);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  const auto late = start(1);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kExhausted);
  EXPECT_NE(late.error().message.find("requests wait"), std::string::npos);
  // Who has gone does not keep others out.
  (*first)->Cancel();
  (*second)->Cancel();
  EXPECT_TRUE(start(1));
  (*running)->Cancel();
}

TEST_P(EngineTest, GenerationStopsAtTheContextsEnd) {
  const uint32_t context = engine_->info().context_tokens;
  ASSERT_EQ(context, kRandomContext);
  const Answer answer = Generate(Request({.tokens = Tokens(context - 3), .spans = {}}, 100));
  EXPECT_EQ(answer.reason, FinishReason::kLength);
  EXPECT_EQ(answer.tokens.size(), 4U);  // the last one needs no room
  const auto full = engine_->Start(Request({.tokens = Tokens(context + 1), .spans = {}}, 1));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kInvalid);
}

TEST_P(EngineTest, SeedsDecide) {
  const Prompt prompt{.tokens = Tokens(15), .spans = {}};
  const auto with_seed = [&](uint64_t seed) {
    GenerateRequest request = Request(prompt, 30);
    request.sampling.temperature = 1.0F;
    request.sampling.top_p = 0.95F;
    request.sampling.seed = seed;
    return Generate(std::move(request)).tokens;
  };
  EXPECT_EQ(with_seed(1), with_seed(1));
  EXPECT_NE(with_seed(1), with_seed(2));
}

TEST_P(EngineTest, EncodingAndGeneratingAtOnce) {
  const Prompt prompt{.tokens = Tokens(60), .spans = {}};
  EncodeRequest encode{.prefix = Tokens(20), .items = {}};
  for (int i = 0; i < 40; ++i)
    encode.items.push_back({.tokens = Tokens(20), .captures = {{0, 20}}});
  std::thread other([&] {
    const auto result = engine_->Encode(encode);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->records.size(), 40U);
    EXPECT_EQ(result->records.back().size(), 1U);
  });
  for (int i = 0; i < 3; ++i) ExpectGreedy(prompt, Generate(Request(prompt, 40)).tokens);
  other.join();
}

TEST_P(EngineTest, PromptsWithoutEndLeaveEncodingAShare) {
  constexpr int kMostPrompts = 400;
  std::atomic<int> answered{0};
  std::atomic<bool> encoded{false};
  std::vector<std::thread> askers;
  for (int i = 0; i < 6; ++i) {  // more than there are slots
    askers.emplace_back([&, prompt = Prompt{.tokens = Tokens(1000), .spans = {}}] {
      while (!encoded && ++answered <= kMostPrompts) Generate(Request(prompt, 1));
    });
  }
  while (answered < 12) std::this_thread::yield();
  EncodeRequest request{.prefix = Tokens(200), .items = {}};
  for (int i = 0; i < 10; ++i)
    request.items.push_back({.tokens = Tokens(40), .captures = {{0, 40}}});
  EXPECT_TRUE(engine_->Encode(request));
  encoded = true;
  for (std::thread& asker : askers) asker.join();
  EXPECT_LT(answered, kMostPrompts) << "it was encoded once nobody asked any more";
}

TEST_P(EngineTest, AnEncodingThatIsStoppedEndsSoon) {
  EncodeRequest request{.prefix = Tokens(20), .items = {}};
  for (int i = 0; i < 400; ++i) {
    request.items.push_back({.tokens = Tokens(400), .captures = {{0, 400}}});
  }
  EncodeRequest small{.prefix = Tokens(20), .items = {request.items.front()}};
  const auto before = engine_->Encode(small);
  ASSERT_TRUE(before) << before.error().message;

  std::stop_source stop;
  request.stop = stop.get_token();
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop.request_stop();
  });
  EXPECT_EQ(engine_->Encode(request).error().code, Code::kCancelled);
  EXPECT_EQ(engine_->Encode(request).error().code, Code::kCancelled);  // stopped from the start
  const auto after = engine_->Encode(small);
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(after->records[0][0].data, before->records[0][0].data);
}

TEST_P(EngineTest, WrongRequestsAreNamed) {
  const auto code = [&](Prompt prompt) {
    auto generation = engine_->Start(Request(std::move(prompt), 1));
    return generation ? Code{} : generation.error().code;
  };
  const auto record = Encode({}, Tokens(10), {10});
  EXPECT_EQ(code({}), Code::kInvalid);
  EXPECT_EQ(code({.tokens = {1, 256}, .spans = {}}), Code::kInvalid);
  EXPECT_EQ(code({.tokens = {1, -1}, .spans = {}}), Code::kInvalid);
  const std::vector<Token> tokens = Tokens(20);
  EXPECT_EQ(code({.tokens = tokens, .spans = {SpanAt(10, record[0])}}), Code::kInvalid)
      << "nothing is left to be computed";
  EXPECT_EQ(code({.tokens = tokens, .spans = {SpanAt(5, record[0]), SpanAt(9, record[0])}}),
            Code::kInvalid)
      << "an overlap";
  PromptSpan outside = SpanAt(0, record[0]);
  outside.record_token = 1;
  EXPECT_EQ(code({.tokens = tokens, .spans = {outside}}), Code::kInvalid);
  PromptSpan other_shape = SpanAt(0, record[0]);
  other_shape.record.shape.layers += 1;
  EXPECT_EQ(code({.tokens = tokens, .spans = {other_shape}}), Code::kInvalid);

  EXPECT_EQ(engine_->Encode({.prefix = {}, .items = {{}}}).error().code, Code::kInvalid);
  EXPECT_EQ(engine_->Encode({.prefix = {}, .items = {{.tokens = {1, 2}, .captures = {{1, 2}}}}})
                .error()
                .code,
            Code::kInvalid);
  EXPECT_EQ(engine_->Encode({.prefix = {-5}, .items = {}}).error().code, Code::kInvalid);
  const std::vector<Token> longest = Tokens(engine_->info().encode_tokens);
  EXPECT_EQ(
      engine_->Encode({.prefix = {1}, .items = {{.tokens = longest, .captures = {}}}}).error().code,
      Code::kInvalid);
  EXPECT_EQ(engine_->Score({.tokens = tokens, .spans = {}}, {}, 0).error().code, Code::kInvalid);
}

// The window is shorter than most of the tests' prompts, and than some of their records.
INSTANTIATE_TEST_SUITE_P(Models, EngineTest, testing::ValuesIn(kModels), NameOfModel);

TEST(EngineShutdown, WaitingRequestsEndWithAnError) {
  auto engine = MakeRandomEngine({}, {.slots = 1});
  ASSERT_NE(engine, nullptr);
  std::mt19937 random(1);
  std::vector<std::unique_ptr<Generation>> running;
  for (int i = 0; i < 3; ++i) {
    GenerateRequest request;
    request.prompt.tokens = RandomTokens(random, 10);
    request.sampling.max_tokens = 2000;
    auto generation = engine->Start(std::move(request));
    ASSERT_TRUE(generation);
    running.push_back(std::move(*generation));
  }
  engine.reset();
  const auto answer = ReadAll(*running.back());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kCancelled);
}

TEST(EngineFingerprint, DependsOnWeightsAndRope) {
  const auto a = MakeRandomEngine();
  const auto b = MakeRandomEngine();
  const auto c = MakeRandomEngine({.freq_base = 20000.0F});
  const auto d = MakeRandomEngine({.architecture = "qwen3"});
  EXPECT_EQ(a->info().fingerprint, b->info().fingerprint);
  EXPECT_NE(a->info().fingerprint, c->info().fingerprint);
  EXPECT_NE(a->info().fingerprint, d->info().fingerprint);
}

}  // namespace
}  // namespace inferscale
