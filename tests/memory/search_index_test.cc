#include "memory/search_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "memory/bm25.h"

namespace inferscale {
namespace {

constexpr size_t kDims = 24;
const Hash128 kEmbedder{1, 2};
const Hash128 kOtherEmbedder{3, 4};
const std::vector<std::string> kWords = {"garden", "river",  "piano",  "train",  "soup",
                                         "winter", "ticket", "doctor", "bridge", "lemon",
                                         "school", "market", "guitar", "puppy",  "island",
                                         "coffee", "museum", "violet", "engine", "paper"};
const std::vector<std::string> kAgents = {"", "tutor", "cook"};
const std::vector<std::string> kRuns = {"", "monday", "friday"};
const std::vector<std::string> kSpeakers = {"", "Ana", "Ben"};
const std::vector<std::string> kFilters = {R"({"speaker": "Ana"})",
                                           R"({"topic": {"in": ["a", "b"]}})",
                                           R"({"NOT": [{"topic": "c"}]})", R"({"topic": "none"})"};

// Eighths, so that every inner product is exact in float, whatever the order of its sum.
std::vector<float> RandomVector(std::mt19937_64& random) {
  std::vector<float> vector(kDims);
  for (float& value : vector) value = static_cast<float>(static_cast<int>(random() % 9) - 4) / 8.0F;
  return vector;
}

const std::string& Pick(std::mt19937_64& random, const std::vector<std::string>& from) {
  return from[random() % from.size()];
}

std::string RandomText(std::mt19937_64& random, size_t words) {
  std::string text;
  for (size_t i = 0; i < words; ++i) text += (i == 0 ? "" : " ") + Pick(random, kWords);
  return text;
}

// The contract, word by word: everything is scored and sorted. The arithmetic of BM25 is written
// as in the index, so that what is equal there is equal here.
struct Reference {
  std::vector<Fact> facts;  // all of the user's, by row
  std::map<std::string, std::vector<float>> vectors;

  std::vector<double> Bm25Scores(const std::string& query) const {
    std::vector<std::vector<std::string>> words;
    size_t total = 0;
    for (const Fact& fact : facts) {
      words.push_back(RankingWords(RenderFact(fact)));
      total += words.back().size();
    }
    std::vector<double> scores(facts.size());
    std::set<std::string> seen;
    const auto n = static_cast<double>(facts.size());
    for (const std::string& word : RankingWords(query)) {
      if (!seen.insert(word).second) continue;
      const auto frequency =
          static_cast<double>(std::count_if(words.begin(), words.end(), [&](const auto& list) {
            return std::find(list.begin(), list.end(), word) != list.end();
          }));
      const double weight = std::log(1.0 + (n - frequency + 0.5) / (frequency + 0.5)) * 2.2;
      for (size_t i = 0; i < facts.size(); ++i) {
        const auto count = static_cast<double>(std::count(words[i].begin(), words[i].end(), word));
        if (count == 0) continue;
        const auto length = static_cast<double>(words[i].size());
        scores[i] += weight * count /
                     (count + (1.2 * 0.25 + 1.2 * 0.75 * n / static_cast<double>(total) * length));
      }
    }
    return scores;
  }

  std::vector<SearchHit> Search(const SearchQuery& query) const {
    const std::vector<double> bm25 = Bm25Scores(query.text);
    std::vector<std::pair<double, size_t>> by_vector;
    std::vector<std::pair<double, size_t>> by_words;
    std::vector<double> cosines(facts.size());
    for (size_t i = 0; i < facts.size(); ++i) {
      const Fact& fact = facts[i];
      if (!query.scope.agent.empty() && fact.scope.agent != query.scope.agent) continue;
      if (!query.scope.run.empty() && fact.scope.run != query.scope.run) continue;
      if (query.filter != nullptr && !query.filter->Matches(fact)) continue;
      if (bm25[i] > 0) by_words.emplace_back(-bm25[i], i);
      const auto vector = vectors.find(fact.id);
      if (vector == vectors.end() || query.vector.empty()) continue;
      for (size_t d = 0; d < kDims; ++d) {
        cosines[i] += double{vector->second[d]} * double{query.vector[d]};
      }
      by_vector.emplace_back(-cosines[i], i);
    }
    std::vector<double> fused(facts.size());
    const size_t depth = std::max<size_t>(200, 4 * std::min(query.limit, facts.size()));
    for (auto* ranking : {&by_vector, &by_words}) {
      std::sort(ranking->begin(), ranking->end());
      for (size_t rank = 0; rank < std::min(depth, ranking->size()); ++rank) {
        fused[(*ranking)[rank].second] += 1.0 / (61.0 + static_cast<double>(rank));
      }
    }
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < facts.size(); ++i) {
      if (fused[i] > 0) order.emplace_back(-fused[i], i);
    }
    std::sort(order.begin(), order.end());
    std::vector<SearchHit> hits;
    for (const auto& [negative, i] : order) {
      if (hits.size() == query.limit) break;
      hits.push_back({facts[i].row, facts[i].episode, static_cast<float>(-negative),
                      static_cast<float>(cosines[i]), static_cast<float>(bm25[i])});
    }
    return hits;
  }
};

class SearchIndexTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    writer_ = OpenStore();
    reader_ = OpenStore();
  }
  void TearDown() override {
    writer_.reset();
    reader_.reset();
    std::filesystem::remove_all(dir_);
  }

  std::unique_ptr<FactStore> OpenStore() {
    FactStoreOptions options;
    options.path = dir_ + "/memory.db";
    auto store = FactStore::Open(clock_, options);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }

  // Adds through the store that the index does not use. Some facts get no vector of kEmbedder.
  void AddFacts(const std::string& user, size_t count) {
    std::vector<Fact> facts(count);
    std::vector<std::vector<float>> vectors(count);
    for (size_t i = 0; i < count; ++i) {
      Fact& fact = facts[i];
      fact.scope = {"default", user, Pick(random_, kAgents), Pick(random_, kRuns)};
      fact.text = RandomText(random_, 1 + random_() % 8);
      fact.speaker = Pick(random_, kSpeakers);
      fact.metadata = fmt::format(R"({{"topic": "{}"}})", "abcd"[random_() % 4]);
      if (random_() % 8 == 0)
        fact.expires_ms = clock_.NowMs() + 1 + static_cast<int64_t>(random_() % 50);
      vectors[i] = RandomVector(random_);
    }
    const bool other = random_() % 6 == 0;
    auto added = writer_->Add(facts, vectors, other ? kOtherEmbedder : kEmbedder);
    ASSERT_TRUE(added) << added.error().message;
    for (size_t i = 0; i < count; ++i) {
      if ((*added)[i].event == AddEvent::kAdded && !other) vectors_[(*added)[i].id] = vectors[i];
    }
  }

  Reference MakeReference(const std::string& user) {
    ListQuery query;
    query.scope.user = user;
    query.limit = 1'000'000;
    auto facts = writer_->List(query);
    EXPECT_TRUE(facts);
    return {std::move(*facts), vectors_};
  }

  void UpdateOne(const std::string& user) {
    const auto facts = MakeReference(user).facts;
    if (facts.empty()) return;
    const Fact& fact = facts[random_() % facts.size()];
    FactUpdate update;
    update.text = RandomText(random_, 5);
    const auto vector = RandomVector(random_);
    const auto now = writer_->Update("default", fact.id, update, vector, kEmbedder);
    ASSERT_TRUE(now) << now.error().message;
    if (RenderFact(*now) != RenderFact(fact)) vectors_[fact.id] = vector;
  }

  void DeleteSome(const std::string& user) {
    std::vector<std::string> ids;
    for (const Fact& fact : MakeReference(user).facts) {
      if (random_() % 10 == 0) ids.push_back(fact.id);
    }
    ASSERT_TRUE(writer_->Delete("default", ids));
  }

  void CheckRandomSearches(SearchIndex& index, const std::string& user, int count) {
    const Reference reference = MakeReference(user);
    for (int i = 0; i < count; ++i) {
      const auto vector = RandomVector(random_);
      SearchQuery query;
      query.scope = {"default", user, random_() % 2 ? Pick(random_, kAgents) : "",
                     random_() % 2 ? Pick(random_, kRuns) : ""};
      query.text = random_() % 5 ? RandomText(random_, random_() % 6) : "";
      if (random_() % 5) query.vector = vector;
      query.limit = random_() % 4 == 0 ? 1'000'000 : random_() % 60;
      Result<Filter> filter = Filter::Parse(random_() % 3 ? "" : Pick(random_, kFilters));
      ASSERT_TRUE(filter) << filter.error().message;
      query.filter = &*filter;
      const auto hits = index.Search(query);
      ASSERT_TRUE(hits) << hits.error().message;
      const auto expected = reference.Search(query);
      ASSERT_EQ(hits->size(), expected.size());
      for (size_t h = 0; h < expected.size(); ++h) {
        ASSERT_EQ((*hits)[h].row, expected[h].row) << "hit " << h;
        EXPECT_EQ((*hits)[h].episode, expected[h].episode);
        EXPECT_FLOAT_EQ((*hits)[h].score, expected[h].score);
        EXPECT_FLOAT_EQ((*hits)[h].cosine, expected[h].cosine);
        EXPECT_FLOAT_EQ((*hits)[h].bm25, expected[h].bm25);
      }
    }
  }

  Result<std::vector<SearchHit>> Ask(SearchIndex& index, const std::string& user,
                                     const std::string& text) {
    SearchQuery query;
    query.scope.user = user;
    query.text = text;
    return index.Search(query);
  }

  const uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("seed {}", seed_)};
  const std::string dir_ = ::testing::TempDir() + "search_index_" + std::to_string(::getpid());
  ManualClock clock_{1'700'000'000'000};
  std::unique_ptr<FactStore> writer_;
  std::unique_ptr<FactStore> reader_;
  std::map<std::string, std::vector<float>> vectors_;  // by id, of kEmbedder
};

TEST_F(SearchIndexTest, AgreesWithTheContractThroughARandomLife) {
  SearchIndex index(*reader_, clock_, kEmbedder, {});
  for (int step = 0; step < 60; ++step) {
    const std::string user = random_() % 3 == 0 ? "ben" : "ana";
    switch (random_() % 6) {
      case 0:
      case 1:
      case 2:
        AddFacts(user, 1 + random_() % 40);
        break;
      case 3:
        UpdateOne(user);
        break;
      case 4:
        DeleteSome(user);
        break;
      case 5:
        clock_.Advance(static_cast<int64_t>(random_() % 40));
        break;
    }
    ASSERT_NO_FATAL_FAILURE(CheckRandomSearches(index, user, 6));
  }
  std::printf("seed %llu: %zu facts at the end\n", static_cast<unsigned long long>(seed_),
              MakeReference("ana").facts.size());
}

TEST_F(SearchIndexTest, DeepRankingsAreCutWhereTheContractSays) {
  SearchIndex index(*reader_, clock_, kEmbedder, {});
  for (int i = 0; i < 15; ++i) AddFacts("ana", 60);
  CheckRandomSearches(index, "ana", 30);
}

TEST_F(SearchIndexTest, ExpiryNeedsNoChangeInTheStore) {
  SearchIndex index(*reader_, clock_, kEmbedder, {});
  Fact fact;
  fact.scope.user = "ana";
  fact.text = "the spare key is under the violet pot";
  fact.expires_ms = clock_.NowMs() + 1000;
  const std::vector<std::vector<float>> vectors = {RandomVector(random_)};
  ASSERT_TRUE(writer_->Add(std::span(&fact, 1), vectors, kEmbedder));
  EXPECT_EQ(Ask(index, "ana", "key")->size(), 1U);
  clock_.Advance(999);
  EXPECT_EQ(Ask(index, "ana", "key")->size(), 1U);
  clock_.Advance(1);
  EXPECT_EQ(Ask(index, "ana", "key")->size(), 0U);
}

TEST_F(SearchIndexTest, UsersAndTenantsAreApart) {
  SearchIndex index(*reader_, clock_, kEmbedder, {});
  Fact fact;
  fact.text = "lemon soup";
  for (const auto& [tenant, user] : std::vector<std::pair<std::string, std::string>>{
           {"t", "uv"}, {"tu", "v"}, {"default", "v"}}) {
    fact.scope = {tenant, user, "", ""};
    const std::vector<std::vector<float>> vectors = {RandomVector(random_)};
    ASSERT_TRUE(writer_->Add(std::span(&fact, 1), vectors, kEmbedder));
  }
  std::set<int64_t> rows;
  SearchQuery query;
  query.text = "lemon";
  for (const Scope& scope :
       {Scope{"t", "uv", "", ""}, Scope{"tu", "v", "", ""}, Scope{"default", "v", "", ""}}) {
    query.scope = scope;
    const auto hits = index.Search(query);
    ASSERT_TRUE(hits);
    ASSERT_EQ(hits->size(), 1U);
    rows.insert(hits->front().row);
  }
  EXPECT_EQ(rows.size(), 3U);
  query.scope = {"t", "v", "", ""};
  EXPECT_TRUE(index.Search(query)->empty());
}

TEST_F(SearchIndexTest, BadQuestionsAreRefused) {
  SearchIndex index(*reader_, clock_, kEmbedder, {});
  AddFacts("ana", 3);
  while (vectors_.empty()) AddFacts("ana", 3);
  SearchQuery query;
  query.text = "of no user, not of any";
  EXPECT_TRUE(index.Search(query)->empty());
  query.scope.user = "ana";
  const std::vector<float> wrong(kDims + 1);
  query.vector = wrong;
  EXPECT_EQ(index.Search(query).error().code, Code::kInvalid);
}

TEST_F(SearchIndexTest, StaysWithinTheBudget) {
  size_t one_user = 0;
  {
    AddFacts("user0", 30);
    SearchIndex index(*reader_, clock_, kEmbedder, {});
    ASSERT_TRUE(Ask(index, "user0", "river"));
    one_user = index.memory_bytes();
    EXPECT_GT(one_user, 30 * (sizeof(Fact) + kDims * 2));
  }
  for (int u = 1; u < 12; ++u) AddFacts("user" + std::to_string(u), 30);
  SearchIndex index(*reader_, clock_, kEmbedder, {one_user * 3});
  for (int i = 0; i < 60; ++i) {
    const std::string user = "user" + std::to_string(random_() % 12);
    ASSERT_NO_FATAL_FAILURE(CheckRandomSearches(index, user, 1));
    EXPECT_LE(index.memory_bytes(), one_user * 3);
    EXPECT_GT(index.memory_bytes(), 0U);
  }
}

TEST_F(SearchIndexTest, AUserLargerThanTheBudgetStaysAlone) {
  AddFacts("small", 3);
  AddFacts("large", 200);
  size_t small = 0;
  size_t large = 0;
  {
    SearchIndex index(*reader_, clock_, kEmbedder, {});
    ASSERT_TRUE(Ask(index, "small", "river"));
    small = index.memory_bytes();
    ASSERT_TRUE(Ask(index, "large", "river"));
    large = index.memory_bytes() - small;
  }
  ASSERT_GT(large, 4 * small);
  SearchIndex index(*reader_, clock_, kEmbedder, {2 * small});
  for (int round = 0; round < 2; ++round) {
    ASSERT_NO_FATAL_FAILURE(CheckRandomSearches(index, "small", 1));
    EXPECT_EQ(index.memory_bytes(), small);
    ASSERT_NO_FATAL_FAILURE(CheckRandomSearches(index, "large", 3));
    EXPECT_EQ(index.memory_bytes(), large);
  }
  index.Forget("default", "large");
  EXPECT_EQ(index.memory_bytes(), 0U);
  ASSERT_NO_FATAL_FAILURE(CheckRandomSearches(index, "large", 1));
}

TEST_F(SearchIndexTest, TellsOfWhatOtherProcessesChanged) {
  AddFacts("ana", 5);
  std::vector<std::string> told;
  SearchIndex index(*reader_, clock_, kEmbedder,
                    {.on_change = [&](const std::string& tenant, const std::string& user) {
                      told.push_back(tenant + "/" + user);
                    }});
  ASSERT_TRUE(Ask(index, "ana", "river"));
  AddFacts("ana", 5);
  ASSERT_TRUE(Ask(index, "ana", "river"));
  EXPECT_TRUE(told.empty());
  ASSERT_TRUE(writer_->DeleteScope({"default", "ana", "", ""}).has_value());
  ASSERT_TRUE(Ask(index, "ana", "river"));
  EXPECT_EQ(told, std::vector<std::string>{"default/ana"});
  ASSERT_TRUE(Ask(index, "ana", "river"));
  EXPECT_EQ(told.size(), 1U);
}

TEST_F(SearchIndexTest, ManyThreadsOverAChangingStore) {
  SearchIndex index(*reader_, clock_, kEmbedder, {size_t{64} << 10});
  for (int u = 0; u < 4; ++u) AddFacts("user" + std::to_string(u), 40);
  std::atomic<bool> stop = false;
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed_ + t);
      while (!stop) {
        const auto vector = RandomVector(random);
        SearchQuery query;
        query.scope.user = "user" + std::to_string(random() % 4);
        query.text = RandomText(random, 3);
        query.vector = vector;
        query.limit = 20;
        const auto hits = index.Search(query);
        const bool sorted =
            hits && std::is_sorted(hits->begin(), hits->end(),
                                   [](const auto& a, const auto& b) { return a.score > b.score; });
        if (!sorted || hits->empty() || hits->size() > 20) ++failures;
      }
    });
  }
  for (int i = 0; i < 20; ++i) AddFacts("user" + std::to_string(i % 4), 3);
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (int u = 0; u < 4; ++u) CheckRandomSearches(index, "user" + std::to_string(u), 3);
}

}  // namespace
}  // namespace inferscale
