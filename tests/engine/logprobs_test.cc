#include "engine/llama/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace inferscale {
namespace {

TEST(Logprobs, AreThoseOfAPlainSoftmax) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    const size_t size = std::uniform_int_distribution<size_t>(1, 300)(random);
    const float offset = std::uniform_real_distribution<float>(-500, 500)(random);
    std::vector<float> logits(size);
    for (float& x : logits) x = offset + std::normal_distribution<float>(0, 8)(random);
    if (size > 4) logits[1] = logits[3] = logits[4];
    long double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<long double>(x) - offset);
    std::vector<RankedToken> expected;
    for (size_t i = 0; i < size; ++i) {
      const auto logprob = static_cast<long double>(logits[i]) - offset - std::log(sum);
      expected.push_back({static_cast<Token>(i), static_cast<float>(logprob)});
    }
    const Logprobs logprobs(logits);
    double total = 0;
    for (const RankedToken& one : expected) {
      EXPECT_NEAR(logprobs.Of(one.token), one.logprob, 1e-5) << one.token;
      total += std::exp(double{logprobs.Of(one.token)});
    }
    EXPECT_NEAR(total, 1, 1e-5);
    std::stable_sort(
        expected.begin(), expected.end(), [&](const RankedToken& a, const RankedToken& b) {
          return logits[static_cast<size_t>(a.token)] > logits[static_cast<size_t>(b.token)];
        });
    const size_t count = std::uniform_int_distribution<size_t>(0, size + 3)(random);
    const std::vector<RankedToken> top = logprobs.Top(count);
    ASSERT_EQ(top.size(), std::min(count, size));
    for (size_t i = 0; i < top.size(); ++i) EXPECT_EQ(top[i].token, expected[i].token) << i;
  }
}

TEST(Logprobs, ATokenThatCannotComeHasNone) {
  const std::vector<float> logits = {-std::numeric_limits<float>::infinity(), 1, 1};
  const Logprobs logprobs(logits);
  EXPECT_EQ(logprobs.Of(0), -std::numeric_limits<float>::infinity());
  EXPECT_FLOAT_EQ(logprobs.Of(2), std::log(0.5F));
}

}  // namespace
}  // namespace inferscale
