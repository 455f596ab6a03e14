#include "app/fidelity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace inferscale {
namespace {

using ::testing::ElementsAre;

std::vector<float> RandomLogits(std::mt19937& random, size_t count, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(random);
  return logits;
}

// The definition, with nothing but the formula.
std::vector<long double> Softmax(const std::vector<float>& logits) {
  std::vector<long double> p;
  long double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<long double>(x));
  for (const float x : logits) p.push_back(std::exp(static_cast<long double>(x)) / sum);
  return p;
}

TEST(Fidelity, EqualsTheDefinitionOnRandomLogits) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    const size_t count = 1 + random() % 400;
    const auto p = RandomLogits(random, count, 4);
    const auto q = RandomLogits(random, count, 4);
    const auto p_probability = Softmax(p);
    const auto q_probability = Softmax(q);
    long double kl = 0;
    for (size_t i = 0; i < count; ++i) {
      kl += p_probability[i] * std::log(p_probability[i] / q_probability[i]);
    }
    EXPECT_NEAR(KlDivergence(p, q), static_cast<double>(kl), 1e-9);
    EXPECT_GE(KlDivergence(p, q), 0);
    const auto token = static_cast<Token>(random() % count);
    EXPECT_NEAR(NegLogLikelihood(p, token),
                static_cast<double>(-std::log(p_probability[static_cast<size_t>(token)])), 1e-9);
    EXPECT_EQ(KlDivergence(p, p), 0);
  }
}

TEST(Fidelity, KnownValues) {
  const float ln3 = std::log(3.0F);
  const std::vector<float> p = {0, ln3};  // 1/4, 3/4
  const std::vector<float> q = {0, 0};    // 1/2, 1/2
  EXPECT_NEAR(KlDivergence(p, q), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  EXPECT_NEAR(KlDivergence(q, p), 0.5 * std::log(2) + 0.5 * std::log(2.0 / 3), 1e-7);
  EXPECT_NEAR(NegLogLikelihood(p, 0), std::log(4), 1e-7);
  EXPECT_NEAR(NegLogLikelihood(p, 1), std::log(4.0 / 3), 1e-7);
}

TEST(Fidelity, AConstantAddedToLogitsChangesNothing) {
  const std::vector<float> p = {1, 2, 3};
  const std::vector<float> far = {30001, 30002, 30003};
  EXPECT_NEAR(KlDivergence(p, far), 0, 1e-9);
  EXPECT_NEAR(NegLogLikelihood(far, 1), NegLogLikelihood(p, 1), 1e-9);
}

TEST(Fidelity, TokensThatCanNotComeAddNothing) {
  const float never = -std::numeric_limits<float>::infinity();
  EXPECT_NEAR(KlDivergence(std::vector<float>{0, 0, never}, std::vector<float>{0, 0, 0}),
              std::log(1.5), 1e-12);
}

TEST(Fidelity, ComparesPositionByPosition) {
  const Logits full = {{0, 5}, {5, 0}, {1, 0}};
  const Logits other = {{0, 5}, {0, 5}, {2, 0}};
  const Fidelity fidelity = Compare(full, other);
  EXPECT_THAT(fidelity.same_top, ElementsAre(true, false, true));
  EXPECT_EQ(fidelity.kl[0], 0);
  EXPECT_GT(fidelity.kl[1], fidelity.kl[2]);
  EXPECT_GT(fidelity.kl[2], 0);
}

UsedFact Used(int64_t episode, uint32_t tokens) {
  UsedFact used;
  used.fact.episode = episode;
  used.tokens = tokens;
  return used;
}

TEST(Fidelity, ShuffledEpisodesStayWholeBetweenHeaderAndTail) {
  const Prompt prompt{.tokens = {1, 2, 10, 11, 12, 20, 21, 30, 40, 7, 8, 9}, .spans = {}};
  const std::vector<UsedFact> used = {Used(5, 1), Used(5, 2), Used(6, 2), Used(7, 1), Used(8, 1)};
  std::mt19937_64 random(3);
  std::map<std::vector<Token>, int> seen;
  for (int round = 0; round < 200; ++round) {
    const std::vector<Token> tokens = ShuffleEpisodes(prompt, used, 3, random).tokens;
    ASSERT_EQ(tokens.size(), prompt.tokens.size());
    EXPECT_THAT(std::vector<Token>(tokens.begin(), tokens.begin() + 2), ElementsAre(1, 2));
    EXPECT_THAT(std::vector<Token>(tokens.end() - 3, tokens.end()), ElementsAre(7, 8, 9));
    const auto at = [&](Token token) {
      return std::find(tokens.begin(), tokens.end(), token) - tokens.begin();
    };
    EXPECT_EQ(at(11), at(10) + 1);
    EXPECT_EQ(at(12), at(10) + 2);
    EXPECT_EQ(at(21), at(20) + 1);
    ++seen[tokens];
  }
  EXPECT_EQ(seen.size(), 24U) << "all orders of four episodes";
}

}  // namespace
}  // namespace inferscale
