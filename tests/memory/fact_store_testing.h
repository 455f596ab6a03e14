// What the tests of the fact store share.
#ifndef INFERSCALE_TESTS_MEMORY_FACT_STORE_TESTING_H_
#define INFERSCALE_TESTS_MEMORY_FACT_STORE_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "memory/fact_store.h"

namespace inferscale {

// A folder that goes with its test.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "inferscale-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string File(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline Fact MakeFact(std::string text, Scope scope = {"default", "ana", "", "r1"}) {
  Fact fact;
  fact.text = std::move(text);
  fact.scope = std::move(scope);
  return fact;
}

inline const Hash128 kEmbedder{1, 2};
inline const Hash128 kEncoding{3, 4};
inline const Fingerprint kModel{5, 6};

// The encoding of the first `covered` facts of an episode, as an encoder would hand it in.
inline EncodedEpisode Encode(const Episode& episode, Hash128 key, const std::vector<Fact>& window,
                             uint32_t covered, Hash128 encoding = kEncoding) {
  EncodedEpisode encoded;
  encoded.kv = {episode.id, key, covered, {}, encoding};
  for (uint32_t i = 0; i < covered; ++i) {
    encoded.kv.fact_tokens.push_back(10 + i);
    encoded.fact_ids.push_back(episode.facts[i].id);
    encoded.fact_versions.push_back(episode.facts[i].version);
  }
  for (const Fact& fact : window) {
    encoded.window_ids.push_back(fact.id);
    encoded.window_versions.push_back(fact.version);
  }
  return encoded;
}

// EXPECTs that a Result or Status succeeded, naming its error.
#define EXPECT_OK(expr)                                          \
  do {                                                           \
    const auto& outcome = (expr);                                \
    EXPECT_TRUE(outcome.has_value()) << outcome.error().message; \
  } while (false)
#define ASSERT_OK(expr)                                          \
  do {                                                           \
    const auto& outcome = (expr);                                \
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message; \
  } while (false)

// A store in a folder of its own, and short ways to use it.
class FactStoreTest : public testing::Test {
 protected:
  void SetUp() override { Reopen(); }

  void Reopen() {
    store_.reset();
    auto store = FactStore::Open(clock_, options_);
    ASSERT_OK(store);
    store_ = *std::move(store);
  }

  std::string Add(const Fact& fact, const std::vector<float>& vector = {}) {
    const auto results = store_->Add(std::span(&fact, 1), std::span(&vector, 1), kEmbedder);
    EXPECT_OK(results);
    return results ? results->front().id : "";
  }
  std::string Add(const std::string& text) { return Add(MakeFact(text)); }

  Fact Get(const std::string& id) {
    const auto fact = store_->Get("default", id);
    EXPECT_OK(fact);
    return fact.value_or(Fact{});
  }
  Episode EpisodeOf(const std::string& id) {
    const int64_t episode = Get(id).episode;
    const auto episodes = store_->GetEpisodes(std::span(&episode, 1));
    EXPECT_EQ(episodes->size(), 1U);
    return episodes->front();
  }
  std::vector<std::string> Texts(const std::vector<Fact>& facts) {
    std::vector<std::string> texts;
    for (const Fact& fact : facts) texts.push_back(fact.text);
    return texts;
  }
  std::vector<std::string> List(ListQuery query) { return Texts(store_->List(query).value()); }

  void PutKv(const std::string& id, uint64_t key, const std::vector<Fact>& window = {}) {
    const Episode episode = EpisodeOf(id);
    ASSERT_OK(store_->PutKv(
        kModel, Encode(episode, {0, key}, window, static_cast<uint32_t>(episode.facts.size()))));
  }
  bool HasKv(int64_t episode, const Hash128& encoding = kEncoding) {
    return !store_->GetKv(std::span(&episode, 1), kModel, encoding)->empty();
  }
  std::vector<uint64_t> Garbage() {
    std::vector<uint64_t> keys;
    const auto garbage = store_->Garbage(100);
    for (const Hash128& key : garbage.value()) keys.push_back(key.low);
    std::ranges::sort(keys);
    return keys;
  }
  size_t Delete(const std::string& id) {
    return store_->Delete("default", std::span(&id, 1)).value();
  }
  void UpdateText(const std::string& id, const std::string& text) {
    FactUpdate update;
    update.text = text;
    ASSERT_OK(store_->Update("default", id, update, {}, kEmbedder));
  }

  TempDir dir_;
  ManualClock clock_{1'700'000'000'000};
  FactStoreOptions options_{.path = dir_.File("memory.db"), .episode_facts = 3};
  std::unique_ptr<FactStore> store_;
};

inline const Scope kAnyone;

using Strings = std::vector<std::string>;
using Keys = std::vector<uint64_t>;

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_MEMORY_FACT_STORE_TESTING_H_
