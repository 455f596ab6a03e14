// Engines over small random models of every kind, and what tests ask them: what is computed is
// compared, so the weights need not make sense.
#ifndef INFERSCALE_TESTS_ENGINE_ENGINE_WORLD_H_
#define INFERSCALE_TESTS_ENGINE_ENGINE_WORLD_H_

#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/llama/llama_engine.h"
#include "random_model.h"

namespace inferscale {

struct Answer {
  std::vector<Token> tokens;
  FinishReason reason = FinishReason::kCancelled;
  GenerateStats stats;
};

inline Result<Answer> ReadAll(Generation& generation) {
  while (true) {
    INFERSCALE_ASSIGN(const auto piece, generation.Next());
    if (!piece) break;
  }
  return Answer{generation.tokens(), generation.finish_reason(), generation.stats()};
}

// Logits of these models reach about 3. Injected keys and values were rounded to f16 once more than
// computed ones: 4e-4 was seen, and 2.1e-3 with the six layers of the windowed one.
constexpr double kNoise = 5e-3;
// ggml's flash attention sums in f16 for small batches and in f32 for large ones.
constexpr double kFlashAttentionNoise = 0.03;

struct Model {
  const char* name;
  RandomModelSpec spec;
};

inline const Model kModels[] = {
    {"Plain", {}},
    {"Windowed", {.architecture = "gemma3", .layers = 6, .freq_base = 1e6F, .window = 48}}};

inline std::string NameOfModel(const testing::TestParamInfo<Model>& test) {
  return test.param.name;
}

class EngineTest : public testing::TestWithParam<Model> {
 protected:
  static void TearDownTestSuite() { engines_.clear(); }
  void SetUp() override {
    std::unique_ptr<Engine>& engine = engines_[GetParam().name];
    if (engine == nullptr) engine = MakeRandomEngine(GetParam().spec, {.slots = 4});
    engine_ = engine.get();
    ASSERT_NE(engine_, nullptr);
    // Other tokens in every test: what one leaves in a cache must not help the next.
    random_.seed(static_cast<uint32_t>(
        HashBytes(AsBytes(testing::UnitTest::GetInstance()->current_test_info()->name())).low));
    ASSERT_TRUE(engine_->info().injection) << engine_->info().self_test.summary;
  }

  // How many of `common` tokens a sequence of `held` still has when the others are taken back.
  static uint32_t Kept(size_t common, size_t held) {
    const uint32_t window = GetParam().spec.window;
    return window == 0 || held < window ? static_cast<uint32_t>(common) : 0;
  }

  std::vector<Token> Tokens(size_t count) { return RandomTokens(random_, count); }

  static GenerateRequest Request(Prompt prompt, uint32_t max_tokens, uint64_t session = 0) {
    GenerateRequest request;
    request.prompt = std::move(prompt);
    request.sampling.max_tokens = max_tokens;
    request.session = session;
    return request;
  }

  static Answer Generate(GenerateRequest request) {
    auto generation = engine_->Start(std::move(request));
    if (!generation) {
      ADD_FAILURE() << generation.error().message;
      return {};
    }
    auto answer = ReadAll(**generation);
    if (!answer) {
      ADD_FAILURE() << answer.error().message;
      return {};
    }
    return *answer;
  }

  // The records of `item` behind `prefix`, cut at `cuts`.
  static std::vector<EncodedRecord> Encode(const std::vector<Token>& prefix,
                                           const std::vector<Token>& item,
                                           const std::vector<uint32_t>& lengths) {
    EncodeRequest request{.prefix = prefix, .items = {{.tokens = item, .captures = {}}}};
    uint32_t first = 0;
    for (const uint32_t length : lengths) {
      request.items[0].captures.push_back({first, length});
      first += length;
    }
    auto result = engine_->Encode(request);
    if (!result) {
      ADD_FAILURE() << result.error().message;
      return {};
    }
    return std::move(result->records[0]);
  }

  // Are `tokens` what a full computation of the prompt continues with, most likely token first?
  static void ExpectGreedy(Prompt prompt, const std::vector<Token>& tokens) {
    prompt.spans.clear();
    const auto logits = engine_->Score(prompt, tokens, 0);
    ASSERT_TRUE(logits) << logits.error().message;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::vector<float>& row = (*logits)[i];
      EXPECT_GT(double{row[static_cast<size_t>(tokens[i])]},
                double{*std::max_element(row.begin(), row.end())} - kNoise)
          << "token " << i;
    }
  }

  static PromptSpan SpanAt(uint32_t first, const EncodedRecord& record) {
    PromptSpan span;
    span.first = first;
    span.tokens = record.tokens;
    span.record = {engine_->info().shape, record.tokens, record.data.data()};
    return span;
  }

  static double Difference(const std::vector<std::vector<float>>& a,
                           const std::vector<std::vector<float>>& b) {
    EXPECT_EQ(a.size(), b.size());
    double largest = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      for (size_t j = 0; j < a[i].size(); ++j) {
        largest = std::max(largest, std::abs(double{a[i][j]} - double{b[i][j]}));
      }
    }
    return largest;
  }

  static void ExpectClose(const EncodedRecord& a, const EncodedRecord& b) {
    ASSERT_EQ(a.tokens, b.tokens);
    ASSERT_EQ(a.data.size(), a.tokens * engine_->info().shape.TokenBytes());
    ASSERT_EQ(a.data.size(), b.data.size());
    double error = 0;
    double largest = 0;
    for (size_t at = 0; at < a.data.size(); at += 2) {
      ggml_fp16_t x = 0;
      ggml_fp16_t y = 0;
      std::memcpy(&x, a.data.data() + at, 2);
      std::memcpy(&y, b.data.data() + at, 2);
      const double value = double{ggml_fp16_to_fp32(x)};
      error = std::max(error, std::abs(value - double{ggml_fp16_to_fp32(y)}));
      largest = std::max(largest, std::abs(value));
    }
    EXPECT_LT(error, 5e-3 * largest) << "largest " << largest;
  }

  inline static std::map<std::string, std::unique_ptr<Engine>> engines_;
  inline static Engine* engine_ = nullptr;
  std::mt19937 random_;
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_ENGINE_ENGINE_WORLD_H_
