// What the tests of the fact store share.
#ifndef INFERSCALE_TESTS_MEMORY_FACT_STORE_TESTING_H_
#define INFERSCALE_TESTS_MEMORY_FACT_STORE_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

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

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_MEMORY_FACT_STORE_TESTING_H_
