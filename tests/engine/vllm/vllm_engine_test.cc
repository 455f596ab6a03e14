#include "engine/vllm/vllm_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/vllm/tokenizer.h"
#include "fake_vllm.h"

namespace inferscale {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

VllmEngineOptions Options(std::vector<std::string> urls) {
  VllmEngineOptions options;
  options.urls = std::move(urls);
  options.connect_timeout = std::chrono::seconds(10);
  options.silence = std::chrono::seconds(20);
  return options;
}

std::string Text(Generation& generation) {
  std::string text;
  while (true) {
    const auto piece = generation.Next();
    if (!piece) return "error: " + piece.error().message;
    if (!*piece) return text;
    text += **piece;
  }
}

class VllmEngineTest : public testing::Test {
 protected:
  void Open() {
    auto engine = OpenVllmEngine(Options({server_.url()}));
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }
  GenerateRequest Ask() {
    GenerateRequest request;
    request.prompt.tokens = engine_->format().Header("Be kind.").value();
    const auto tail = engine_->format().Tail("Why?").value();
    request.prompt.tokens.insert(request.prompt.tokens.end(), tail.begin(), tail.end());
    return request;
  }
  GenerateRequest AskWithPlan() {
    GenerateRequest request = Ask();
    request.tenant = "acme";
    request.prompt.spans.resize(2);
    request.prompt.spans[0].tokens = 5;
    request.prompt.spans[0].key = HashBytes(AsBytes("a"));
    request.prompt.spans[1].first = 5;
    request.prompt.spans[1].tokens = 3;
    request.prompt.spans[1].record_token = 2;
    request.prompt.spans[1].key = HashBytes(AsBytes("b"));
    return request;
  }

  FakeVllm server_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(VllmEngineTest, IntroducesItselfAndRunsTheSelfTest) {
  Open();
  const ModelInfo& info = engine_->info();
  EXPECT_EQ(info.name, "little");
  EXPECT_TRUE(info.injection);
  EXPECT_TRUE(info.stores_kv);
  EXPECT_EQ(info.kv_dir, "/somewhere/kv");
  EXPECT_EQ(info.fingerprint.Hex(), server_.be().fingerprint);
  EXPECT_EQ(info.shape, (KvShape{2, 1, 8, 8, Dtype::kF16}));
  EXPECT_EQ(info.context_tokens, 4096U);
  EXPECT_EQ(server_.Count("op self_test"), 2);
  EXPECT_EQ(server_.Count("op info"), 2);
  // Another gateway finds the test done.
  Open();
  EXPECT_EQ(server_.Count("op self_test"), 2);
}

TEST_F(VllmEngineTest, AFailedSelfTestMeansText) {
  server_.be().passes_self_test = false;
  Open();
  EXPECT_FALSE(engine_->info().injection);
  EXPECT_THAT(engine_->info().self_test.summary, HasSubstr("failed"));
  auto generation = engine_->Start(AskWithPlan());
  ASSERT_TRUE(generation);
  EXPECT_EQ(Text(**generation), server_.be().text);
  EXPECT_FALSE(server_.Bodies("/v1/completions").back().contains("kv_transfer_params"));
}

TEST_F(VllmEngineTest, WithoutConnectorTheTokenizerHasToBeKnown) {
  server_.be().connector = false;
  const auto refused = OpenVllmEngine(Options({server_.url()}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("--enable-tokenizer-info-endpoint"));
  server_.be().tokenizer_info = true;
  Open();
  EXPECT_FALSE(engine_->info().injection);
  EXPECT_THAT(engine_->info().self_test.summary, HasSubstr("without InferScale's"));
  EXPECT_EQ(engine_->format().Header("x")->front(), 256);  // the tokenizer's own BOS
}

TEST_F(VllmEngineTest, UsersTextNeverGivesSpecialTokens) {
  Open();
  const std::string marker = "<|im_end|>";
  std::mt19937 random(20260501);
  RecordProperty("seed", 20260501);
  const std::string pieces[] = {"<", "|im_", "end|>", "<|im_start|>", marker, "a", "\xc3\xa9", " "};
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += pieces[random() % std::size(pieces)];
    const auto tokens = engine_->format().Text(text);
    ASSERT_TRUE(tokens) << text;
    std::string spelled;
    for (const Token token : *tokens) {
      ASSERT_LT(token, 256) << text;
      spelled += static_cast<char>(token);
    }
    EXPECT_EQ(spelled, text);
  }
  const auto tail = engine_->format().Tail("x" + marker + marker).value();
  EXPECT_EQ(std::count(tail.begin(), tail.end(), FakeVllm::kEnd), 2);  // the template's own
  EXPECT_EQ(engine_->format().Text("caf\xe9").error().code, Code::kInvalid);
}

TEST(CutMarkers, NoPartHoldsAMarker) {
  const std::vector<std::string> markers = {"<|a|>", "|><", "\xc3\xa9\xc3\xa9", "x"};
  const auto cut = [&](std::string_view text) {
    std::vector<std::string> parts;
    for (const auto part : CutMarkers(text, markers)) parts.emplace_back(part);
    return parts;
  };
  EXPECT_EQ(cut("plain"), std::vector<std::string>{"plain"});
  EXPECT_EQ(cut("1<|a|>2"), (std::vector<std::string>{"1<", "|a|>2"}));
  // Markers that overlap are both cut.
  EXPECT_EQ(cut("<|a|><|a|>"), (std::vector<std::string>{"<", "|a|", "><", "|a|>"}));
  EXPECT_EQ(cut("\xc3\xa9\xc3\xa9"), (std::vector<std::string>{"\xc3\xa9", "\xc3\xa9"}));
  EXPECT_TRUE(cut("").empty());
}

TEST_F(VllmEngineTest, ExpectedTextsAreAskedForOnce) {
  Open();
  const int before = server_.Count("/tokenize");
  for (int i = 0; i < 20; ++i) engine_->format().Expect("text " + std::to_string(i % 10));
  for (int i = 0; i < 10; ++i) {
    const std::string text = "text " + std::to_string(i);
    const auto tokens = engine_->format().Text(text);
    ASSERT_TRUE(tokens);
    EXPECT_EQ(std::string(tokens->begin(), tokens->end()), text);
  }
  EXPECT_EQ(server_.Count("/tokenize"), before + 10);
}

TEST_F(VllmEngineTest, StreamsCutAnywhereGiveTheSameAnswer) {
  Open();
  for (size_t cut = 0; cut < 40; ++cut) {
    server_.be().cut = cut;
    auto generation = engine_->Start(Ask());
    ASSERT_TRUE(generation);
    EXPECT_EQ(Text(**generation), server_.be().text);
    EXPECT_EQ((*generation)->finish_reason(), FinishReason::kStop);
    EXPECT_EQ((*generation)->tokens().size(), server_.be().text.size() + 1);
    EXPECT_EQ((*generation)->tokens().back(), FakeVllm::kEnd);
    EXPECT_TRUE(engine_->Detokenize(std::span(&(*generation)->tokens().back(), 1)).empty());
  }
}

TEST_F(VllmEngineTest, SendsThePlanAndCountsWhatWasTaken) {
  Open();
  GenerateRequest request = AskWithPlan();
  request.sampling.grammar = "root ::= \"a\"";
  auto generation = engine_->Start(request);
  ASSERT_TRUE(generation);
  EXPECT_EQ(Text(**generation), server_.be().text);
  const auto body = server_.Bodies("/v1/completions").back();
  const auto& op = body.at("kv_transfer_params").at("inferscale");
  EXPECT_EQ(op.at("tenant"), "acme");
  EXPECT_EQ(std::string_view(op.at("spans").as_string()).substr(56),
            "050000000300000002000000" + request.prompt.spans[1].key.Hex());
  EXPECT_EQ(body.at("stop_token_ids"), boost::json::array{FakeVllm::kEnd});
  EXPECT_EQ(body.at("structured_outputs").at("grammar"), "root ::= \"a\"");
  const GenerateStats& stats = (*generation)->stats();
  EXPECT_EQ(stats.injected_tokens, 8U);
  EXPECT_FALSE(stats.injected_is_planned);
  EXPECT_EQ(stats.prefilled_tokens, request.prompt.tokens.size() - 8);
  server_.be().usage_details = false;
  generation = engine_->Start(request);
  ASSERT_TRUE(generation);
  EXPECT_EQ(Text(**generation), server_.be().text);
  EXPECT_TRUE((*generation)->stats().injected_is_planned);
}

TEST_F(VllmEngineTest, IsPartOfTheAskersTrace) {
  Open();
  GenerateRequest request = AskWithPlan();
  request.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  server_.be().break_completions = 1;  // asked again
  auto generation = engine_->Start(request).value();
  EXPECT_EQ(Text(*generation), server_.be().text);
  EXPECT_EQ(server_.Trace(), request.traceparent);
  generation = engine_->Start(Ask()).value();
  Text(*generation);
  EXPECT_EQ(server_.Trace(), "");
}

TEST_F(VllmEngineTest, PassesLogprobsAndSchemasOn) {
  Open();
  GenerateRequest request = Ask();
  request.sampling.logprobs = 1;
  request.sampling.json_schema = R"({"type": "object"})";
  auto generation = engine_->Start(request).value();
  const auto first = generation->Next().value();
  const std::vector<PlaceLogprobs> place = generation->TakeLogprobs();
  ASSERT_EQ(place.size(), 1U);
  EXPECT_EQ(place[0].chosen.text, *first);
  EXPECT_EQ(place[0].chosen.logprob, -1.5F);
  ASSERT_EQ(place[0].top.size(), 1U);
  EXPECT_EQ(place[0].top[0].text, "best");
  Text(*generation);
  // All but the end of the turn.
  EXPECT_EQ(generation->TakeLogprobs().size(), generation->tokens().size() - 2);
  const auto body = server_.Bodies("/v1/completions").back();
  EXPECT_EQ(body.at("logprobs"), 1);
  EXPECT_EQ(body.at("structured_outputs").at("json").at("type"), "object");
  generation = engine_->Start(Ask()).value();
  Text(*generation);
  EXPECT_TRUE(generation->TakeLogprobs().empty());
  EXPECT_FALSE(server_.Bodies("/v1/completions").back().contains("logprobs"));
}

TEST(VllmProtocol, LogprobsFitTheirTokensOrAreCorrupt) {
  for (const char* wrong :
       {R"({"tokens": ["a"], "token_logprobs": []})",
        R"({"tokens": ["a"], "token_logprobs": [null]})",
        R"({"tokens": [1], "token_logprobs": [1]})",
        R"({"tokens": ["a"], "token_logprobs": [1], "top_logprobs": []})",
        R"({"tokens": ["a"], "token_logprobs": [1], "top_logprobs": [{"a": "b"}]})"}) {
    const auto part =
        ParseCompletion(R"({"choices": [{"text": "a", "logprobs": )" + std::string(wrong) + "}]}");
    ASSERT_FALSE(part) << wrong;
    EXPECT_EQ(part.error().code, Code::kCorrupt);
  }
  const std::string good = R"({"choices": [{"text": "a", "finish_reason": "stop", "logprobs":
      {"tokens": ["a"], "token_logprobs": [-1]})";
  EXPECT_TRUE(ParseCompletion(good + "}]}")->logprobs.empty());  // the end of the turn
  EXPECT_EQ(ParseCompletion(good + R"(, "stop_reason": "x"}]})")->logprobs.size(), 1U);
}

// What tests/python/vllm/test_vllm_parts.py has for the same plan.
TEST(VllmProtocol, APlansSaltIsTheConnectors) {
  const Hash128 fingerprint = Hash128::FromHex("6465666768696a6b6c6d6e6f70717273");
  const auto span = [](uint32_t first, uint32_t tokens, uint32_t record_token, const char* key) {
    PromptSpan made;
    made.first = first, made.tokens = tokens, made.record_token = record_token;
    made.key = Hash128::FromHex(key);
    return made;
  };
  std::vector<PromptSpan> spans = {span(0, 41, 0, "000102030405060708090a0b0c0d0e0f"),
                                   span(41, 96, 7, "ffffffffffffffffffffffffffffffff"),
                                   span(140, 5, 0, "01010101010101010101010101010101")};
  const std::string salt = PlanSalt(fingerprint, "acme", spans);
  EXPECT_EQ(salt, "inferscale:8acb6a55b4c57c72ddcb1841be5dbd29");
  spans.pop_back();  // of another group
  EXPECT_EQ(PlanSalt(fingerprint, "acme", spans), salt);
  spans.back().tokens = 95;
  EXPECT_NE(PlanSalt(fingerprint, "acme", spans), salt);
  EXPECT_NE(PlanSalt(fingerprint, "other", spans), PlanSalt(fingerprint, "acme", spans));
}

TEST_F(VllmEngineTest, WithoutIdsTheTextIsTokenised) {
  Open();
  server_.be().token_ids = false;
  auto generation = engine_->Start(Ask());
  ASSERT_TRUE(generation);
  EXPECT_EQ(Text(**generation), server_.be().text);
  EXPECT_EQ((*generation)->tokens().size(), server_.be().text.size());
}

TEST_F(VllmEngineTest, TriesAgainBeforeTheFirstTokenOnly) {
  Open();
  server_.be().fail_completions = 2;
  auto generation = engine_->Start(Ask());
  ASSERT_TRUE(generation);
  EXPECT_EQ(Text(**generation), server_.be().text);
  server_.be().break_completions = 1;
  generation = engine_->Start(Ask());
  ASSERT_TRUE(generation);
  EXPECT_EQ(Text(**generation), server_.be().text);
  server_.be().break_after_first = true;
  generation = engine_->Start(Ask());
  ASSERT_TRUE(generation);
  EXPECT_THAT(Text(**generation), HasSubstr("error: " + server_.url()));
}

TEST_F(VllmEngineTest, AMemoryThatFailsCostsNoAnswer) {
  Open();
  server_.be().refuse_plans = true;
  auto generation = engine_->Start(AskWithPlan());
  ASSERT_TRUE(generation);
  EXPECT_EQ(Text(**generation), server_.be().text);
  EXPECT_EQ((*generation)->stats().injected_tokens, 0U);
}

TEST_F(VllmEngineTest, ABrokenServerIsLeftAlone) {
  Open();
  server_.be().fail_completions = 1000;
  const GenerateRequest request = Ask();
  auto generation = engine_->Start(request);
  ASSERT_TRUE(generation);
  const std::string text = Text(**generation);
  EXPECT_THAT(text, HasSubstr("error: "));
  EXPECT_THAT(text, Not(HasSubstr("secret")));
  const int asked = server_.Count("/v1/completions");
  const auto refused = engine_->Start(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kTransient);
  EXPECT_EQ(server_.Count("/v1/completions"), asked);  // the circuit is open
}

TEST_F(VllmEngineTest, SeveralServersTakeTurnsAndASessionStays) {
  FakeVllm other;
  auto engine = OpenVllmEngine(Options({server_.url(), other.url()}));
  ASSERT_TRUE(engine) << engine.error().message;
  engine_ = std::move(*engine);
  const auto streams = [](FakeVllm& server) {
    const auto bodies = server.Bodies("/v1/completions");
    return std::count_if(bodies.begin(), bodies.end(),
                         [](const auto& body) { return body.at("stream").as_bool(); });
  };
  const auto ask = [&](uint64_t session) {
    GenerateRequest request = Ask();
    request.session = session;
    auto generation = engine_->Start(request);
    ASSERT_TRUE(generation) << generation.error().message;
    EXPECT_EQ(Text(**generation), server_.be().text);
  };
  for (int i = 0; i < 3; ++i) ask(7);
  EXPECT_EQ(streams(server_) * streams(other), 0);
  for (int i = 0; i < 8; ++i) ask(0);
  EXPECT_GT(streams(server_) * streams(other), 0);
  // One fails: the other answers for it.
  server_.be().fail_completions = 1000;
  for (int i = 0; i < 6; ++i) ask(0);
}

TEST_F(VllmEngineTest, AnotherModelsServerIsNotUsed) {
  FakeVllm other;
  other.be().fingerprint = "ffffffffffffffffffffffffffffffff";
  auto engine = OpenVllmEngine(Options({server_.url(), other.url()}));
  ASSERT_TRUE(engine) << engine.error().message;
  engine_ = std::move(*engine);
  for (int i = 0; i < 4; ++i) {
    auto generation = engine_->Start(Ask());
    ASSERT_TRUE(generation) << generation.error().message;
    EXPECT_EQ(Text(**generation), server_.be().text);
  }
}

TEST_F(VllmEngineTest, CancellingClosesTheConnection) {
  Open();
  server_.be().endless = true;
  auto generation = engine_->Start(Ask());
  ASSERT_TRUE(generation);
  ASSERT_TRUE((*generation)->Next());
  (*generation)->Cancel();
  EXPECT_EQ((*generation)->Next().value(), std::nullopt);
  EXPECT_EQ((*generation)->finish_reason(), FinishReason::kCancelled);
  while (server_.Count("gone") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST_F(VllmEngineTest, WhatWaitsInTheServerCanBeStopped) {
  Open();
  server_.be().waits = true;
  std::stop_source stop;
  GenerateRequest request = Ask();
  request.stop = stop.get_token();
  auto generation = engine_->Start(std::move(request));
  ASSERT_TRUE(generation);
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_EQ((*generation)->Next().value(), std::nullopt);
  EXPECT_EQ((*generation)->finish_reason(), FinishReason::kCancelled);
  while (server_.Count("gone") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST_F(VllmEngineTest, EncodesBehindThePrefixWithKeys) {
  Open();
  EncodeRequest request;
  request.tenant = "acme";
  request.prefix = {1, 2, 3};
  for (int i = 0; i < 9; ++i) {
    const Hash128 key = HashBytes(AsBytes(std::to_string(i)));
    request.items.push_back({{10 + i, 11, 12}, {{0, 2, key}, {2, 1, Hash128{1, 2}}}});
  }
  const auto result = engine_->Encode(request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->computed_tokens, 9U * 6);
  EXPECT_EQ(server_.Count("op encode"), 9);
  std::vector<boost::json::object> encodes;
  for (const auto& body : server_.Bodies("/v1/completions")) {
    const auto& op = body.at("kv_transfer_params").at("inferscale").as_object();
    if (op.at("op") == "encode") encodes.push_back(body);
  }
  const auto& first = encodes.front();  // alone, for the prefix
  EXPECT_EQ(first.at("prompt"), (boost::json::array{1, 2, 3, 10, 11, 12}));
  EXPECT_EQ(first.at("max_tokens"), 1);
  const auto& records = first.at("kv_transfer_params").at("inferscale").at("records");
  EXPECT_EQ(records.at(0), (boost::json::array{HashBytes(AsBytes("0")).Hex(), 3, 2}));
  EXPECT_EQ(records.at(1).at(1), 5);
  std::stop_source stop;
  stop.request_stop();
  request.stop = stop.get_token();
  EXPECT_EQ(engine_->Encode(request).error().code, Code::kCancelled);
}

TEST(VllmEngine, NobodyThereAndBadUrls) {
  std::string gone;
  {
    const FakeVllm server;
    gone = server.url();
  }
  const auto refused = OpenVllmEngine(Options({gone}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kTransient);
  EXPECT_THAT(refused.error().message, HasSubstr(gone));
  EXPECT_EQ(OpenVllmEngine(Options({"localhost:8000"})).error().code, Code::kInvalid);
  EXPECT_EQ(OpenVllmEngine(Options({"https://h"})).error().code, Code::kUnsupported);
  EXPECT_EQ(OpenVllmEngine(Options({})).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace inferscale
