#include "memory/bm25.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace inferscale {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RankingWordsTest, SplitsAndFoldsCase) {
  EXPECT_THAT(RankingWords("Rome, London--OSLO (2024)!"),
              ElementsAre("rom", "london", "oslo", "2024"));
  EXPECT_THAT(RankingWords("x=y+z"), ElementsAre("x", "y", "z"));
  EXPECT_THAT(RankingWords("  \n\t-- ... "), IsEmpty());
  EXPECT_THAT(RankingWords(""), IsEmpty());
}

TEST(RankingWordsTest, KeepsLettersOfOtherScripts) {
  EXPECT_THAT(RankingWords("MÜNCHEN «Фото» Ωmega"), ElementsAre("münchen", "фото", "ωmega"));
  EXPECT_THAT(RankingWords("東京へ行く、tomorrow"),
              ElementsAre("東", "京", "へ", "行", "く", "tomorrow"));
}

TEST(RankingWordsTest, DamagedBytesSeparate) {
  EXPECT_THAT(RankingWords("moon\xffsun\xc3"), ElementsAre("moon", "sun"));
}

TEST(RankingWordsTest, WordsThatSayLittleAreDropped) {
  EXPECT_THAT(RankingWords("What did you do with the boat"), ElementsAre("boat"));
}

TEST(RankingWordsTest, FormsOfAWordMeet) {
  const std::vector<std::vector<std::string>> families = {
      {"dog", "dogs"},
      {"city", "cities"},
      {"make", "makes", "making"},
      {"plan", "plans", "planned", "planning"},
      {"bake", "baked", "baking", "bakes"},
      {"call", "called", "calling"},
      {"miss", "missed", "missing"},
  };
  for (const auto& family : families) {
    for (const std::string& word : family) {
      EXPECT_EQ(RankingWords(word), RankingWords(family[0])) << word;
    }
  }
}

TEST(RankingWordsTest, ShortAndOddEndingsStay) {
  EXPECT_THAT(RankingWords("king ring red need bus glass s"),
              ElementsAre("king", "ring", "red", "need", "bus", "glass", "s"));
}

TEST(Bm25Test, MatchesTheFormulaByHand) {
  Bm25 index;
  EXPECT_EQ(index.Add("apple banana apple"), 0U);
  EXPECT_EQ(index.Add("banana cherry"), 1U);
  EXPECT_EQ(index.Add("cherry"), 2U);
  EXPECT_EQ(index.size(), 3U);
  const std::vector<double> scores = index.Score("apple cherry apple");
  ASSERT_EQ(scores.size(), 3U);
  const double average = 2.0;
  const auto term = [&](double df, double tf, double length) {
    const double idf = std::log(1.0 + (3.0 - df + 0.5) / (df + 0.5));
    return idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / average));
  };
  EXPECT_NEAR(scores[0], term(1, 2, 3), 1e-12);  // a word asked twice counts once
  EXPECT_NEAR(scores[1], term(2, 1, 2), 1e-12);
  EXPECT_NEAR(scores[2], term(2, 1, 1), 1e-12);
}

TEST(Bm25Test, NothingSharedIsZero) {
  Bm25 index;
  EXPECT_THAT(index.Score("apple"), IsEmpty());
  index.Add("");
  EXPECT_THAT(index.Score("apple"), ElementsAre(0.0));
  index.Add("banana");
  EXPECT_THAT(index.Score("apple"), ElementsAre(0.0, 0.0));
  EXPECT_THAT(index.Score(""), ElementsAre(0.0, 0.0));
}

TEST(Bm25Test, MemoryGrowsWithTheWords) {
  Bm25 index;
  const size_t before = index.MemoryBytes();
  for (int i = 0; i < 1000; ++i) index.Add("word" + std::to_string(i) + " and another");
  EXPECT_GT(index.MemoryBytes(), before + 1000 * sizeof(uint64_t));
}

}  // namespace
}  // namespace inferscale
