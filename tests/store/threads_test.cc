// One store used by many threads at once. Run under ThreadSanitizer this also finds unlocked data.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "sample.h"

namespace inferscale {
namespace {

TEST(Threads, PutGetEraseAndCompactGoOnTogether) {
  TempDir dir(TempDir::Where::kMemory);
  const SystemClock clock;
  KvStoreOptions options = SampleOptions(dir.path() + "/kv");
  options.segment_bytes = 40 << 10;
  options.arena_bytes = 96 << 10;
  auto store = KvStore::Open(SystemEnv(), clock, options);
  ASSERT_TRUE(store) << store.error().message;
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);

  // Records 1 to 20 come and go; 101 to 110 stay.
  std::vector<uint64_t> lasting;
  for (uint64_t n = 101; n <= 110; ++n) lasting.push_back(n);
  ASSERT_TRUE(PutSamples(**store, lasting));
  std::atomic<int> served = 0;
  const auto read = [&](uint64_t n) {
    const auto kv = GetSample(**store, n);
    if (kv) {
      ++served;
      EXPECT_TRUE(IsSample(**kv, n)) << n;
    } else if (kv.error().code == Code::kNotFound) {
      EXPECT_LE(n, 100U) << "a record that nobody erased is gone";
    } else {
      EXPECT_EQ(kv.error().code, Code::kExhausted) << kv.error().message;
    }
  };
  const auto work = [&](uint64_t thread) {
    std::mt19937_64 random(seed + thread);
    for (int step = 0; step < 150; ++step) {
      const uint64_t n = 1 + random() % 20;
      switch (random() % 10) {
        case 0:
          EXPECT_TRUE(EraseSamples(**store, {n, n + 1}));
          break;
        case 1:
        case 2:
          EXPECT_TRUE(PutSamples(**store, {n, n + 2}));
          break;
        case 3:
          (void)(*store)->stats();
          break;
        case 4: {
          // One at a time; the others are told so.
          const auto report = (*store)->Compact(random() % 2 == 0);
          EXPECT_TRUE(report || report.error().code == Code::kConflict) << report.error().message;
          break;
        }
        case 5:
        case 6:
          read(n);
          break;
        default:
          read(101 + random() % 10);
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (uint64_t t = 0; t < 4; ++t) threads.emplace_back(work, t);
  }
  EXPECT_GT(served, 100);
  EXPECT_EQ((*store)->stats().corrupt_records, 0U);
  EXPECT_EQ((*store)->stats().pinned_bytes, 0U);
}

TEST(Threads, OneRecordIsReadOnce) {
  TempDir dir(TempDir::Where::kMemory);
  const SystemClock clock;
  const KvStoreOptions options = SampleOptions(dir.path() + "/kv");
  {
    auto store = KvStore::Open(SystemEnv(), clock, options);
    ASSERT_TRUE(store);
    ASSERT_TRUE(PutSamples(**store, {1}));
  }
  auto store = KvStore::Open(SystemEnv(), clock, options);
  ASSERT_TRUE(store);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&] {
        const auto kv = GetSample(**store, 1);
        ASSERT_TRUE(kv) << kv.error().message;
        EXPECT_TRUE(IsSample(**kv, 1));
      });
    }
  }
  EXPECT_EQ((*store)->stats().disk_reads, 1U);
  EXPECT_EQ((*store)->stats().arena_hits, 5U);
}

}  // namespace
}  // namespace inferscale
