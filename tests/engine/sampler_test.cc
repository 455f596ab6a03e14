#include "engine/llama/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace inferscale {
namespace {

// exp() of these is proportional to 8, 4, 2, 1, 1.
const std::vector<float> kLogits = {std::log(2.0F), std::log(8.0F), std::log(1.0F), std::log(4.0F),
                                    std::log(1.0F)};

std::vector<int> Counts(const Sampling& sampling, int draws = 20000) {
  Sampler sampler(sampling);
  std::vector<int> counts(kLogits.size());
  for (int i = 0; i < draws; ++i) ++counts[static_cast<size_t>(sampler.Sample(kLogits))];
  return counts;
}

std::set<Token> Support(const Sampling& sampling) {
  const std::vector<int> counts = Counts(sampling);
  std::set<Token> support;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) support.insert(static_cast<Token>(i));
  }
  return support;
}

TEST(Sampler, TemperatureZeroTakesTheFirstOfTheLargest) {
  Sampler sampler({});
  EXPECT_EQ(sampler.Sample(kLogits), 1);
  EXPECT_EQ(sampler.Sample(std::vector<float>{1, 3, 3, 2}), 1);
}

TEST(Sampler, DrawsInProportion) {
  const std::vector<int> counts = Counts({.temperature = 1.0F, .seed = 5});
  const std::vector<double> expected = {2, 8, 1, 4, 1};
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_NEAR(counts[i] / 20000.0, expected[i] / 16.0, 0.015) << i;
  }
}

TEST(Sampler, TemperatureSharpens) {
  // Weights squared: 64 of 86.
  const std::vector<int> counts = Counts({.temperature = 0.5F, .seed = 5});
  EXPECT_NEAR(counts[1] / 20000.0, 64.0 / 86.0, 0.015);
}

TEST(Sampler, FiltersKeepTheMostLikely) {
  EXPECT_EQ(Support({.temperature = 1, .top_k = 2}), (std::set<Token>{1, 3}));
  EXPECT_EQ(Support({.temperature = 1, .top_k = 1}), (std::set<Token>{1}));
  EXPECT_EQ(Support({.temperature = 1, .top_k = 99}).size(), 5U);
  EXPECT_EQ(Support({.temperature = 1, .top_p = 0.5F}), (std::set<Token>{1}));
  EXPECT_EQ(Support({.temperature = 1, .top_p = 0.51F}), (std::set<Token>{1, 3}));
  // Of the three best, 14 in sum, 8 + 4 are enough for 0.8 but not 8.
  EXPECT_EQ(Support({.temperature = 1, .top_p = 0.8F, .top_k = 3}), (std::set<Token>{1, 3}));
  EXPECT_EQ(Support({.temperature = 1, .min_p = 0.2F}), (std::set<Token>{0, 1, 3}));
  EXPECT_EQ(Support({.temperature = 1, .top_k = 4, .min_p = 0.4F}), (std::set<Token>{1, 3}));
  // Two candidates tie for the fourth place; the smaller id has it.
  EXPECT_EQ(Support({.temperature = 1, .top_k = 4}), (std::set<Token>{0, 1, 2, 3}));
}

TEST(Sampler, FilteredDrawsAreInProportion) {
  const std::vector<int> counts = Counts({.temperature = 1, .top_p = 0.8F, .seed = 9});
  EXPECT_NEAR(counts[1] / 20000.0, 8.0 / 14.0, 0.015);  // 8 + 4 are below 0.8 of 16
  EXPECT_NEAR(counts[0] / 20000.0, 2.0 / 14.0, 0.015);
}

TEST(Sampler, SameSeedSameTokens) {
  const Sampling sampling{.temperature = 1.5F, .top_p = 0.95F, .seed = 42};
  Sampling other = sampling;
  other.seed = 43;
  Sampler a(sampling);
  Sampler b(sampling);
  Sampler c(other);
  int differences = 0;
  for (int i = 0; i < 200; ++i) {
    const Token token = a.Sample(kLogits);
    EXPECT_EQ(token, b.Sample(kLogits));
    differences += token != c.Sample(kLogits) ? 1 : 0;
  }
  EXPECT_GT(differences, 0);
}

TEST(Sampler, RangesAreChecked) {
  EXPECT_TRUE(CheckSampling({}));
  EXPECT_FALSE(CheckSampling({.max_tokens = 0}));
  EXPECT_FALSE(CheckSampling({.temperature = -1}));
  EXPECT_FALSE(CheckSampling({.temperature = std::nanf("")}));
  EXPECT_FALSE(CheckSampling({.top_p = 0}));
  EXPECT_FALSE(CheckSampling({.top_p = 1.5F}));
  EXPECT_FALSE(CheckSampling({.top_k = -1}));
  EXPECT_FALSE(CheckSampling({.min_p = 2}));
}

}  // namespace
}  // namespace inferscale
