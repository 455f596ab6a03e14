// The file: what is in it and what not, whose it is, who shares it, how old it may be.
#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "fact_store_testing.h"
#include "memory/half.h"

namespace inferscale {
namespace {

TEST_F(FactStoreTest, DeletedBytesAreNowhereAfterCompact) {
  std::vector<float> vector(384);
  for (size_t i = 0; i < vector.size(); ++i) vector[i] = static_cast<float>(i) / 100.0F;
  std::string vector_canary(384 * 2, '\0');
  for (size_t i = 0; i < vector.size(); ++i) {
    const uint16_t half = FloatToHalf(vector[i]);
    std::memcpy(&vector_canary[i * 2], &half, 2);
  }
  const std::string text_canary = "canary-7c1e52";
  Strings ids;
  for (int i = 0; i < 200; ++i) {
    Fact fact = MakeFact(fmt::format("{} number {} {}", text_canary, i, std::string(i % 90, 'x')));
    fact.metadata = R"({"secret": "canary-7c1e52"})";
    ids.push_back(Add(fact, vector));
    Add(fmt::format("harmless {}", i));
  }
  for (size_t i = 0; i < ids.size(); i += 3) UpdateText(ids[i], text_canary + " updated");
  const auto found = [&](const std::string& canary) {
    return ReadWholeFile(options_.path).find(canary) != std::string::npos ||
           ReadWholeFile(options_.path + "-wal").find(canary) != std::string::npos;
  };
  ASSERT_TRUE(found(text_canary));
  ASSERT_TRUE(found(vector_canary.substr(100, 64)));
  ASSERT_EQ(*store_->Delete("default", ids), ids.size());
  const uint64_t bytes_before = store_->Stats(kModel)->file_bytes;
  ASSERT_OK(store_->Compact());
  EXPECT_LT(store_->Stats(kModel)->file_bytes, bytes_before / 2);
  EXPECT_FALSE(found(text_canary));
  EXPECT_FALSE(found(vector_canary.substr(100, 64)));
  EXPECT_EQ(store_->Stats(kModel)->facts, 200U);
}

TEST_F(FactStoreTest, TheFileIsForItsOwnerOnly) {
  namespace fs = std::filesystem;
  Add("a");
  for (const char* suffix : {"", "-wal"}) {
    EXPECT_EQ(fs::status(options_.path + suffix).permissions(),
              fs::perms::owner_read | fs::perms::owner_write);
  }
}

TEST_F(FactStoreTest, RefusesFilesThatAreNotItsOwn) {
  const auto open = [&](const std::string& name) {
    const auto store = FactStore::Open(clock_, {.path = dir_.File(name)});
    return store ? Error{Code{}, ""} : store.error();
  };
  std::ofstream(dir_.File("text")) << std::string(5000, 'x');
  EXPECT_EQ(open("text").code, Code::kCorrupt);
  EXPECT_EQ(open("missing/memory.db").code, Code::kTransient);

  const auto with_sql = [&](const std::string& name, const char* sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(dir_.File(name).c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  };
  with_sql("other.db", "CREATE TABLE t(x)");
  EXPECT_EQ(open("other.db").code, Code::kCorrupt);
  EXPECT_EQ(open("fresh.db").message, "");
  with_sql("fresh.db", "PRAGMA user_version=99");
  EXPECT_EQ(open("fresh.db").code, Code::kCorrupt);
  EXPECT_NE(open("fresh.db").message.find("newer version (schema 99"), std::string::npos);
  EXPECT_EQ(FactStore::Open(clock_, {.path = dir_.File("x.db"), .episode_facts = 0}).error().code,
            Code::kInvalid);
}

class OldFileTest : public FactStoreTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Versions, OldFileTest, testing::Values(1, 2, 3, 4, 5));

TEST_P(OldFileTest, IsBroughtUpToDate) {
  options_.path = dir_.File("old.db");
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(options_.path.c_str(), &db), SQLITE_OK);
  // From version 2 on each file only adds to the one before it.
  for (int version = std::min(GetParam(), 2); version <= GetParam(); ++version) {
    const std::string step =
        ReadWholeFile(fmt::format(INFERSCALE_SOURCE_DIR "/tests/memory/memory_v{}.sql", version));
    ASSERT_EQ(sqlite3_exec(db, step.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
  }
  sqlite3_close(db);
  for (int round = 0; round < 2; ++round) {
    Reopen();
    ASSERT_OK(store_->Verify());
    EXPECT_EQ(List({.scope = kAnyone}), (Strings{"first", "second", "third"}));
    EXPECT_EQ(Texts(*store_->WithoutVector(kEmbedder, 9)), (Strings{"second", "third"}));
    const int64_t episodes[] = {1, 2};
    const auto kv = store_->GetKv(episodes, kModel, kEncoding);
    ASSERT_EQ(kv->size(), 1U);
    EXPECT_EQ(kv->front().key, (Hash128{0, 77}));
    EXPECT_EQ(kv->front().fact_tokens, (std::vector<uint32_t>{10, 11}));
    EXPECT_EQ(*store_->PendingEpisodes(kModel, kEncoding, {}), std::vector<int64_t>{2});
    EXPECT_EQ(Garbage(), Keys{78});
    EXPECT_EQ(*store_->RankCounts(), std::vector<uint32_t>{1});
    EXPECT_EQ(store_->Quotas()->size(), static_cast<size_t>(round));
    ASSERT_OK(store_->PutQuota("default", {.facts = 3}));
    const auto verdict = store_->GetVerdict({0, 77});
    ASSERT_OK(verdict);
    ASSERT_EQ(verdict->has_value(), GetParam() == 5);
    if (*verdict) {
      EXPECT_TRUE((*verdict)->passed);
      EXPECT_EQ((*verdict)->positions, 288U);
      EXPECT_EQ((*verdict)->least_facts, 0U);
    }
  }
  Delete("id-3");  // stood in the window
  EXPECT_EQ(Garbage(), (Keys{77, 78}));
  EXPECT_EQ(*store_->PendingEpisodes(kModel, kEncoding, {}), std::vector<int64_t>{1});
}

// Bytes that this process has read from files so far.
uint64_t BytesRead() {
  std::ifstream io("/proc/self/io");
  std::string name;
  uint64_t bytes = 0;
  io >> name >> bytes;
  EXPECT_EQ(name, "rchar:");
  return bytes;
}

TEST_F(FactStoreTest, AStartAndAPassReadLittleOfALargeFile) {
  std::vector<Fact> facts;
  for (int i = 0; i < 6000; ++i) facts.push_back(MakeFact(fmt::format("number {}", i)));
  const std::vector<std::vector<float>> vectors(facts.size(), std::vector<float>(384, 0.5F));
  ASSERT_OK(store_->Add(facts, vectors, kEmbedder));
  while (true) {
    const auto ids = store_->PendingEpisodes(kModel, kEncoding, {.limit = 500}).value();
    if (ids.empty()) break;
    const auto episodes = store_->GetEpisodes(ids);
    for (const Episode& episode : *episodes) {
      ASSERT_OK(store_->PutKv(kModel, Encode(episode, {1, static_cast<uint64_t>(episode.id)}, {},
                                             static_cast<uint32_t>(episode.facts.size()))));
    }
  }
  Add("comes last");
  store_.reset();
  const uint64_t size = std::filesystem::file_size(options_.path);
  ASSERT_GT(size, 5U << 20);
  const uint64_t before = BytesRead();
  Reopen();
  EXPECT_EQ(store_->WithoutVector(kEmbedder, 64)->size(), 1U);
  EXPECT_EQ(store_->PendingEpisodes(kModel, kEncoding, {.limit = 64})->size(), 1U);
  EXPECT_EQ(*store_->CountPending(kModel, kEncoding), 1U);
  EXPECT_LT(BytesRead() - before, size / 20);
}

// Two processes would do the same: each has its own connections to the file.
TEST_F(FactStoreTest, TwoStoresShareAFile) {
  auto second = FactStore::Open(clock_, options_);
  ASSERT_OK(second);
  constexpr int kRounds = 60;
  std::atomic<int> failures{0};
  const auto work = [&](FactStore& store, const std::string& user) {
    for (int i = 0; i < kRounds; ++i) {
      const Fact fact = MakeFact(fmt::format("{} {}", user, i), {"default", "both", "", "r"});
      const auto added = store.Add(std::span(&fact, 1), {}, kEmbedder);
      if (!added || !store.Get("default", added->front().id)) ++failures;
      if (added && i % 3 == 0) {
        FactUpdate update;
        update.text = fmt::format("{} {} changed", user, i);
        if (!store.Update("default", added->front().id, update, {}, kEmbedder)) ++failures;
      }
      if (added && i % 5 == 4 && !store.Delete("default", std::span(&added->front().id, 1))) {
        ++failures;
      }
    }
  };
  std::thread other([&] { work(**second, "b"); });
  work(*store_, "a");
  other.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(store_->Stats(kModel)->facts, 2U * kRounds * 4 / 5);
  EXPECT_EQ(*store_->Generation("default", "both"), *(*second)->Generation("default", "both"));
  // Episodes stay within their limit and hold all facts.
  const auto facts = store_->List({.scope = kAnyone, .limit = 1000}).value();
  std::map<int64_t, size_t> counts;
  for (const Fact& fact : facts) ++counts[fact.episode];
  for (const auto& [episode, count] : counts) EXPECT_LE(count, 3U);
  EXPECT_EQ(counts.size(), store_->Stats(kModel)->episodes);
}

}  // namespace
}  // namespace inferscale
