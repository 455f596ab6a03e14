#include "store/record_readers.h"

#include <gtest/gtest.h>

#include <random>

#include "sample.h"

namespace inferscale {
namespace {

class RecordReadersTest : public testing::TestWithParam<size_t> {
 protected:
  // Records 1 to `count` on the disk; each takes at most three pages of the arena.
  void Make(uint64_t count, uint64_t arena_bytes) {
    KvStoreOptions options = SampleOptions(dir_.path() + "/kv");
    options.arena_bytes = 0;
    store_ = KvStore::Open(SystemEnv(), clock_, options).value();
    for (uint64_t n = 1; n <= count; ++n) ASSERT_TRUE(PutSamples(*store_, {n}));
    store_ = nullptr;
    options.arena_bytes = arena_bytes;
    store_ = KvStore::Open(SystemEnv(), clock_, options).value();
    readers_ = std::make_unique<RecordReaders>(store_, GetParam());
  }

  TempDir dir_{TempDir::Where::kMemory};
  SystemClock clock_;
  std::shared_ptr<KvStore> store_;
  std::unique_ptr<RecordReaders> readers_;
  const KvOwner owner_{"tenant", kSampleFingerprint, kSampleShape};
};

INSTANTIATE_TEST_SUITE_P(Threads, RecordReadersTest, testing::Values(0, 1, 4));

TEST_P(RecordReadersTest, EveryRecordComesInItsTurn) {
  Make(20, 1 << 20);
  Sample foreign = MakeSample(21, "other");
  Sample everyones = MakeSample(22, "");
  const KvPut puts[] = {foreign.Put(), everyones.Put()};
  ASSERT_TRUE(store_->Put(puts));
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<uint64_t> numbers(60);
  for (uint64_t& n : numbers) n = 1 + random() % 25;  // 21 is another's, from 23 on there are none
  std::vector<Hash128> keys;
  for (const uint64_t n : numbers) keys.push_back(SampleKey(n));

  size_t next = 0;
  readers_->Read(owner_, keys, [&](size_t i, const RecordReaders::Record& record) {
    ASSERT_EQ(i, next++);
    const uint64_t n = numbers[i];
    if (n == 21 || n > 22) {
      ASSERT_FALSE(record);
      EXPECT_EQ(record.error().code, Code::kNotFound);
    } else {
      ASSERT_TRUE(record) << record.error().message;
      EXPECT_TRUE(IsSample(**record, n)) << n;
    }
  });
  EXPECT_EQ(next, keys.size());
}

TEST_P(RecordReadersTest, WhatIsReadAheadTakesNoRoomFromWhoNeedsIt) {
  Make(30, 3 * 12'288);  // fewer than are read ahead
  std::vector<Hash128> keys;
  for (uint64_t n = 1; n <= 30; ++n) keys.push_back(SampleKey(n));
  int taken = 0;
  readers_->Read(owner_, keys, [&](size_t i, const RecordReaders::Record& record) {
    ASSERT_TRUE(record) << record.error().message;
    EXPECT_TRUE(IsSample(**record, i + 1));
    ++taken;
  });
  EXPECT_EQ(taken, 30);
}

TEST_P(RecordReadersTest, WhoKeepsRecordsIsAskedToMakeRoom) {
  Make(30, 3 * 12'288);
  std::vector<Hash128> keys;
  for (uint64_t n = 1; n <= 30; ++n) keys.push_back(SampleKey(n));
  std::vector<std::shared_ptr<const PinnedKv>> kept;
  int taken = 0;
  int asked = 0;
  const auto take = [&](size_t i, RecordReaders::Record record) {
    ASSERT_TRUE(record) << record.error().message;
    EXPECT_TRUE(IsSample(**record, i + 1));
    kept.push_back(std::move(*record));
    ++taken;
  };
  readers_->Read(owner_, keys, take, [&] {
    kept.clear();
    ++asked;
  });
  EXPECT_EQ(taken, 30);
  EXPECT_GT(asked, 0);

  // Nobody makes room: what does not fit says so, and the rest is there.
  kept.clear();
  size_t full = 0;
  readers_->Read(owner_, keys, [&](size_t, RecordReaders::Record record) {
    if (record) {
      kept.push_back(std::move(*record));
    } else {
      EXPECT_EQ(record.error().code, Code::kExhausted);
      ++full;
    }
  });
  EXPECT_GT(kept.size(), 0U);
  EXPECT_GT(full, 0U);
  EXPECT_EQ(kept.size() + full, keys.size());
}

}  // namespace
}  // namespace inferscale
