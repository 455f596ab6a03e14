#include "memory/compose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

namespace inferscale {
namespace {

// One token a byte, so that lengths are easy to see.
class ByteFormat final : public PromptFormat {
 public:
  Result<std::vector<Token>> Header(std::string_view system) const override { return Ids(system); }
  Result<std::vector<Token>> Text(std::string_view text) const override { return Ids(text); }
  Result<std::vector<Token>> Plain(std::string_view text) const override { return Ids(text); }
  Result<std::vector<Token>> Tail(std::string_view question) const override {
    return Ids(question);
  }
  std::vector<Token> MemoryBlock(bool) const override { return {}; }
  Result<std::vector<Token>> NextTail(bool, std::string_view question) const override {
    return Ids(question);
  }
  Hash128 Hash() const override { return {}; }

 private:
  static std::vector<Token> Ids(std::string_view text) { return {text.begin(), text.end()}; }
};

Hash128 KeyOf(int64_t episode) { return Hasher().Add(static_cast<uint64_t>(episode)).Digest(); }

class ComposeTest : public ::testing::Test {
 protected:
  // `sizes[i]` facts in episode i + 1; rows count up from 1.
  void Build(std::vector<uint32_t> sizes) {
    int64_t row = 1;
    for (size_t e = 0; e < sizes.size(); ++e) {
      Episode episode;
      episode.id = static_cast<int64_t>(e) + 1;
      for (uint32_t i = 0; i < sizes[e]; ++i, ++row) {
        Fact fact;
        fact.row = row;
        fact.id = std::to_string(row);
        fact.episode = episode.id;
        fact.text = "fact " + std::string(static_cast<size_t>(row % 5 + 1), 'x') + fact.id;
        episode.facts.push_back(fact);
        episode_of_[row] = episode.id;
      }
      episodes_.emplace(episode.id, std::move(episode));
    }
  }

  SearchHit Hit(int64_t row, float score) { return {row, episode_of_.at(row), score, 0, 0}; }

  uint32_t TokensOf(const Fact& fact) {
    return static_cast<uint32_t>((*tokens_.Get(fact))->size());
  }

  std::vector<Piece> Choose(std::vector<SearchHit> hits, ComposeOptions options,
                            std::unordered_set<int64_t> held = {}) {
    return ChoosePieces(hits, episodes_, held, options,
                        [this](const Fact& fact) { return TokensOf(fact); });
  }

  EpisodeKv KvOf(int64_t id, uint32_t covered) {
    EpisodeKv kv{id, KeyOf(id), covered, {}, {}};
    for (uint32_t i = 0; i < covered; ++i) {
      kv.fact_tokens.push_back(TokensOf(episodes_.at(id).facts[i]));
    }
    return kv;
  }

  static std::vector<int64_t> Rows(const std::vector<Piece>& pieces) {
    std::vector<int64_t> rows;
    for (const Piece& piece : pieces) {
      for (uint32_t i = 0; i < piece.count; ++i) {
        rows.push_back(piece.episode->facts[piece.first + i].row);
      }
    }
    return rows;
  }

  ByteFormat format_;
  FactTokens tokens_{format_, 1000};
  std::unordered_map<int64_t, Episode> episodes_;
  std::unordered_map<int64_t, int64_t> episode_of_;
};

TEST_F(ComposeTest, TakesWholeEpisodesBestLast) {
  Build({3, 3, 3});  // rows 1-3, 4-6, 7-9
  const auto pieces = Choose({Hit(5, 0.9F), Hit(1, 0.5F)}, {.facts = 6});
  EXPECT_EQ(Rows(pieces), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(ComposeTest, FillsTheLastPlacesUpToTheHit) {
  Build({3, 3});
  const auto pieces = Choose({Hit(5, 0.9F), Hit(3, 0.5F)}, {.facts = 5});
  // Two places are left for the first episode: the hit (3) and the fact before it.
  EXPECT_EQ(Rows(pieces), (std::vector<int64_t>{2, 3, 4, 5, 6}));
}

TEST_F(ComposeTest, FewerFactsThanAnEpisodeStillHoldTheHit) {
  Build({6});
  EXPECT_EQ(Rows(Choose({Hit(4, 1.0F)}, {.facts = 2})), (std::vector<int64_t>{3, 4}));
}

TEST_F(ComposeTest, HeldFactsDoNotComeTwice) {
  Build({5});
  EXPECT_EQ(Rows(Choose({Hit(4, 1.0F), Hit(2, 0.5F)}, {.facts = 10}, {2, 4})),
            (std::vector<int64_t>{}));
  const auto pieces = Choose({Hit(3, 1.0F)}, {.facts = 10}, {2, 4});
  EXPECT_EQ(Rows(pieces), (std::vector<int64_t>{1, 3, 5}));
  EXPECT_EQ(pieces.size(), 3U);
}

TEST_F(ComposeTest, TokenBudgetIsKept) {
  Build({2, 2, 2});
  ComposeOptions options{.facts = 6};
  options.fact_tokens = TokensOf(episodes_.at(1).facts[0]) + TokensOf(episodes_.at(1).facts[1]);
  const auto rows = Rows(Choose({Hit(1, 1.0F), Hit(3, 0.9F), Hit(5, 0.8F)}, options));
  EXPECT_EQ(rows, (std::vector<int64_t>{1, 2}));
}

TEST_F(ComposeTest, NeverBreaksItsLimitsAtRandom) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Build({1, 6, 4, 6, 2, 6, 3});
  for (int round = 0; round < 2000; ++round) {
    std::vector<SearchHit> hits;
    std::unordered_set<int64_t> held;
    for (int64_t row = 1; row <= 28; ++row) {
      if (random() % 3 == 0) hits.push_back(Hit(row, 1.0F / static_cast<float>(row)));
      if (random() % 5 == 0) held.insert(row);
    }
    std::shuffle(hits.begin(), hits.end(), random);
    ComposeOptions options{.facts = static_cast<uint32_t>(random() % 30)};
    options.fact_tokens = random() % 2 == 0 ? 0 : static_cast<uint32_t>(random() % 300 + 1);
    const auto pieces = Choose(hits, options, held);
    const auto rows = Rows(pieces);
    EXPECT_LE(rows.size(), options.facts);
    EXPECT_EQ(std::set<int64_t>(rows.begin(), rows.end()).size(), rows.size());
    uint32_t tokens = 0;
    for (const Piece& piece : pieces) {
      for (uint32_t i = 0; i < piece.count; ++i) {
        const Fact& fact = piece.episode->facts[piece.first + i];
        tokens += TokensOf(fact);
        EXPECT_FALSE(held.contains(fact.row));
      }
    }
    if (options.fact_tokens != 0) {
      EXPECT_LE(tokens, options.fact_tokens);
    }
    // With room for everything, every hit that is not held is in.
    if (options.facts >= 28 && options.fact_tokens == 0) {
      for (const SearchHit& hit : hits) {
        if (held.contains(hit.row)) continue;
        EXPECT_NE(std::find(rows.begin(), rows.end(), hit.row), rows.end());
      }
    }
  }
}

TEST_F(ComposeTest, InjectsAllButTheLastFacts) {
  Build({3, 3});
  const std::vector<SearchHit> hits = {Hit(5, 0.9F), Hit(1, 0.5F)};
  const auto pieces = Choose(hits, {.facts = 6});
  const std::vector<Token> header = {'H', 'H'};
  const std::vector<Token> tail = {'?'};
  const auto made = Compose({header, KeyOf(99)}, pieces, tail, {{1, KvOf(1, 3)}, {2, KvOf(2, 3)}},
                            hits, {.plain_last = 2, .min_kv_tokens = 0}, tokens_);
  ASSERT_TRUE(made.has_value());
  ASSERT_EQ(made->facts.size(), 6U);
  ASSERT_EQ(made->spans.size(), 3U);  // header, episode 1, the first fact of episode 2
  EXPECT_EQ(made->spans[0].tokens, 2U);
  EXPECT_EQ(made->spans[1].key, KeyOf(1));
  EXPECT_EQ(made->spans[2].key, KeyOf(2));
  EXPECT_EQ(made->spans[2].tokens, made->facts[3].tokens);
  EXPECT_TRUE(made->facts[3].injected);
  EXPECT_FALSE(made->facts[4].injected);
  EXPECT_FLOAT_EQ(made->facts[4].score, 0.9F);  // row 5, the hit itself
  EXPECT_FLOAT_EQ(made->facts[5].score, 0.0F);
  // Spans, facts and tail cover the tokens without a gap.
  uint32_t at = 2;
  for (const ComposedFact& fact : made->facts) {
    EXPECT_EQ(fact.first_token, at);
    at += fact.tokens;
  }
  EXPECT_EQ(made->tokens.size(), at + tail.size());
  EXPECT_EQ(made->tokens.back(), '?');
}

TEST_F(ComposeTest, WhatHasNoKvStandsBehind) {
  Build({3, 3});
  const std::vector<SearchHit> hits = {Hit(5, 0.9F), Hit(1, 0.5F)};
  const auto pieces = Choose(hits, {.facts = 6});
  // The record of episode 1 covers two of its facts, episode 2 is complete.
  const auto made = Compose({{}, {}}, pieces, {}, {{1, KvOf(1, 2)}, {2, KvOf(2, 3)}}, hits,
                            {.plain_last = 0, .min_kv_tokens = 0}, tokens_);
  ASSERT_TRUE(made.has_value());
  std::vector<int64_t> rows;
  for (const ComposedFact& fact : made->facts) rows.push_back(fact.fact->row);
  EXPECT_EQ(rows, (std::vector<int64_t>{1, 2, 4, 5, 6, 3}));
  EXPECT_FALSE(made->facts.back().injected);
  // Injection is one run from the start.
  uint32_t at = 0;
  for (const KvSpan& span : made->spans) {
    EXPECT_EQ(span.first, at);
    at += span.tokens;
  }
}

TEST_F(ComposeTest, ARunInsideAnEpisodeStartsInsideItsRecord) {
  Build({6});
  const std::vector<SearchHit> hits = {Hit(5, 1.0F)};
  const auto pieces = Choose(hits, {.facts = 2});
  const auto made = Compose({{}, {}}, pieces, {}, {{1, KvOf(1, 6)}}, hits,
                            {.plain_last = 0, .min_kv_tokens = 0}, tokens_);
  ASSERT_TRUE(made.has_value());
  ASSERT_EQ(made->spans.size(), 1U);
  uint32_t before = 0;
  for (int i = 0; i < 3; ++i) before += TokensOf(episodes_.at(1).facts[static_cast<size_t>(i)]);
  EXPECT_EQ(made->spans[0].record_token, before);
}

TEST_F(ComposeTest, ARecordOfOtherLengthsIsNotUsed) {
  Build({3});
  EpisodeKv kv = KvOf(1, 3);
  kv.fact_tokens[1] += 1;
  const std::vector<SearchHit> hits = {Hit(1, 1.0F)};
  const auto made = Compose({{}, {}}, Choose(hits, {.facts = 3}), {}, {{1, kv}}, hits,
                            {.plain_last = 0, .min_kv_tokens = 0}, tokens_);
  ASSERT_TRUE(made.has_value());
  ASSERT_EQ(made->facts.size(), 3U);
  EXPECT_TRUE(made->facts[0].injected);
  EXPECT_FALSE(made->facts[1].injected);
  EXPECT_FALSE(made->facts[2].injected);
}

TEST_F(ComposeTest, TooLittleKvIsNotWorthACopy) {
  Build({1});
  const std::vector<SearchHit> hits = {Hit(1, 1.0F)};
  const auto made = Compose({{}, {}}, Choose(hits, {.facts = 1}), {}, {{1, KvOf(1, 1)}}, hits,
                            {.plain_last = 0, .min_kv_tokens = 1000}, tokens_);
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE(made->spans.empty());
  EXPECT_FALSE(made->facts[0].injected);
}

TEST_F(ComposeTest, TokensGoWithTheUserWhoseTheyAre) {
  Build({3});
  std::vector<Fact> facts = episodes_.at(1).facts;
  for (Fact& fact : facts) fact.scope.user = "ana";
  Fact other = facts[0];
  other.scope.user = "ben";
  for (const Fact& fact : facts) ASSERT_TRUE(tokens_.Get(fact).has_value());
  const auto kept = tokens_.Get(other);
  EXPECT_EQ(tokens_.size(), 4U);
  EXPECT_NE(*kept, *tokens_.Get(facts[0]));  // the same text, but another user's
  tokens_.Forget("default", "ana");
  EXPECT_EQ(tokens_.size(), 1U);
  EXPECT_EQ(*kept, *tokens_.Get(other));
  tokens_.Forget("default", "nobody");
  tokens_.Forget("default", "ben");
  EXPECT_EQ(tokens_.size(), 0U);
}

TEST_F(ComposeTest, TokensAreKeptUpToTheLimit) {
  FactTokens small(format_, 2);
  Build({4});
  for (int round = 0; round < 3; ++round) {
    for (const Fact& fact : episodes_.at(1).facts) {
      const auto ids = small.Get(fact);
      ASSERT_TRUE(ids.has_value());
      const std::string line = RenderFact(fact);
      EXPECT_TRUE(std::equal(line.begin(), line.end(), (*ids)->begin(), (*ids)->end()));
      EXPECT_LE(small.size(), 2U);
    }
  }
}

}  // namespace
}  // namespace inferscale
