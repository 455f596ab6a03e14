// The embedded engine with a real model: text in, text out.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "engine/llama/llama_engine.h"

namespace inferscale {
namespace {

class RealModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* path = std::getenv("INFERSCALE_MODEL");
    if (path == nullptr) return;
    LlamaEngineOptions options;
    options.model_path = path;
    options.threads = 1;
    options.context_tokens = 1024;
    auto engine = OpenLlamaEngine(options);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = engine->release();
  }
  static void TearDownTestSuite() { delete engine_; }
  void SetUp() override {
    if (engine_ == nullptr) GTEST_SKIP() << "INFERSCALE_MODEL is not set";
  }

  struct Composition {
    Prompt plain;
    Prompt injected;
    std::vector<std::vector<EncodedRecord>> records;
  };

  // Header, facts and question; all but the question captured from one pass, as its own records.
  static Composition Compose(const std::vector<std::string>& facts, const std::string& question) {
    const PromptFormat& format = engine_->format();
    Composition made;
    EncodeItem item;
    item.tokens = format.Header("Answer from these facts.");
    item.captures.push_back({0, static_cast<uint32_t>(item.tokens.size())});
    for (const std::string& fact : facts) {
      const auto tokens = format.Text(fact).value();
      item.captures.push_back(
          {static_cast<uint32_t>(item.tokens.size()), static_cast<uint32_t>(tokens.size())});
      item.tokens.insert(item.tokens.end(), tokens.begin(), tokens.end());
    }
    auto encoded = engine_->Encode({.prefix = {}, .items = {item}});
    if (!encoded) {
      ADD_FAILURE() << encoded.error().message;
      return made;
    }
    made.records = std::move(encoded->records);
    made.plain.tokens = item.tokens;
    const auto tail = format.Tail(question).value();
    made.plain.tokens.insert(made.plain.tokens.end(), tail.begin(), tail.end());
    made.injected = made.plain;
    for (size_t i = 0; i < item.captures.size(); ++i) {
      PromptSpan span;
      span.first = item.captures[i].first;
      span.tokens = item.captures[i].tokens;
      const EncodedRecord& record = made.records[0][i];
      span.record = {engine_->info().shape, record.tokens, record.data.data()};
      made.injected.spans.push_back(span);
    }
    return made;
  }

  struct Answer {
    std::string text;
    std::vector<Token> tokens;
    FinishReason reason = FinishReason::kCancelled;
    GenerateStats stats;
  };
  static Answer Generate(const Prompt& prompt, Sampling sampling = {.max_tokens = 16}) {
    GenerateRequest request;
    request.prompt = prompt;
    request.sampling = std::move(sampling);
    auto generation = engine_->Start(std::move(request));
    Answer answer;
    if (!generation) {
      ADD_FAILURE() << generation.error().message;
      return answer;
    }
    while (true) {
      const auto piece = (*generation)->Next();
      if (!piece) {
        ADD_FAILURE() << piece.error().message;
        break;
      }
      if (!*piece) break;
      EXPECT_FALSE((*piece)->empty());
      answer.text += **piece;
    }
    answer.tokens = (*generation)->tokens();
    answer.reason = (*generation)->finish_reason();
    answer.stats = (*generation)->stats();
    return answer;
  }

  static Engine* engine_;
  const std::vector<std::string> facts_ = {"Ana lives in Porto.\n", "Her dog is called Bolt.\n",
                                           "She plays the cello.\n"};
};

Engine* RealModel::engine_ = nullptr;

TEST_F(RealModel, PassesItsSelfTest) {
  const ModelInfo& info = engine_->info();
  EXPECT_TRUE(info.injection) << info.self_test.summary;
  EXPECT_TRUE(info.self_test.passed);
  for (const double error : info.self_test.layer_error) EXPECT_LT(error, 1e-5);
  EXPECT_EQ(info.self_test.layer_error.size(), info.shape.layers);
  EXPECT_FALSE(info.fingerprint.IsZero());
  EXPECT_FALSE(info.name.empty());
}

TEST_F(RealModel, CompositionOfOnePrefillGivesItsLogitsAndAnswer) {
  const Composition made = Compose(facts_, "Where does Ana live?");
  const auto continuation = engine_->format().Text("Ana lives in Porto.").value();
  const auto expected = engine_->Score(made.plain, continuation);
  const auto actual = engine_->Score(made.injected, continuation);
  ASSERT_TRUE(expected && actual);
  double difference = 0;
  double largest = 0;
  for (size_t i = 0; i < expected->size(); ++i) {
    for (size_t j = 0; j < (*expected)[i].size(); ++j) {
      const double a = double{(*expected)[i][j]};
      difference = std::max(difference, std::abs(a - double{(*actual)[i][j]}));
      largest = std::max(largest, std::abs(a));
    }
  }
  RecordProperty("difference", std::to_string(difference));
  // 0.84 of 35 was seen: ggml's attention sums in f16 for less than 64 tokens, and of 49,152 logits
  // this is the one that differs most.
  EXPECT_LT(difference, 0.05 * largest) << "largest logit " << largest;

  const Answer plain = Generate(made.plain);
  const Answer injected = Generate(made.injected);
  EXPECT_EQ(plain.text, injected.text);
  EXPECT_EQ(plain.tokens, injected.tokens);
  EXPECT_NE(plain.text.find("Porto"), std::string::npos) << plain.text;
  EXPECT_GT(injected.stats.injected_tokens, injected.stats.prefilled_tokens);
  EXPECT_EQ(injected.stats.injected_tokens + injected.stats.prefilled_tokens,
            made.plain.tokens.size());
}

TEST_F(RealModel, EndOfTurnIsReportedButNotShown) {
  Prompt prompt{.tokens = engine_->format().Header("Answer with one word."), .spans = {}};
  const auto tail = engine_->format().Tail("Say yes.").value();
  prompt.tokens.insert(prompt.tokens.end(), tail.begin(), tail.end());
  const Answer answer = Generate(prompt, {.max_tokens = 60});
  ASSERT_EQ(answer.reason, FinishReason::kStop);
  EXPECT_EQ(answer.text.find("<|im_end|>"), std::string::npos);
  EXPECT_EQ(engine_->Detokenize(answer.tokens), answer.text);
  EXPECT_EQ(engine_->Detokenize(std::span(&answer.tokens.back(), 1)), "");
}

TEST_F(RealModel, StopStringEndsTheAnswer) {
  const Composition made = Compose(facts_, "Where does Ana live?");
  const Answer whole = Generate(made.injected);
  ASSERT_GT(whole.text.size(), 8U);
  // Across a border between tokens: from the middle of the text.
  const std::string stop = whole.text.substr(5, 6);
  const Answer cut = Generate(made.injected, {.max_tokens = 16, .stop = {stop}});
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_EQ(cut.reason, FinishReason::kStop);
  EXPECT_LT(cut.tokens.size(), whole.tokens.size());
}

}  // namespace
}  // namespace inferscale
