#include "kv/rank_key.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace inferscale {
namespace {

TEST(RankKey, EveryRankHasItsOwnAndLeadsBack) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::set<Hash128> seen;
  const std::vector<Hash128> keys = {{random(), random()}, {random(), random()}};
  size_t made = 0;
  for (const uint32_t ranks : {1U, 2U, 3U, 8U}) {
    const std::vector<Hash128> all = RankKeys(keys, ranks);
    ASSERT_EQ(all.size(), keys.size() * ranks);
    for (size_t i = 0; i < all.size(); ++i) {
      const auto rank = static_cast<uint32_t>(i % ranks);
      EXPECT_EQ(all[i], RankKey(keys[i / ranks], rank, ranks));
      EXPECT_EQ(RankKey(all[i], rank, ranks), keys[i / ranks]);
      seen.insert(all[i]);
      ++made;
    }
  }
  EXPECT_EQ(seen.size(), made);
  EXPECT_EQ(RankKey(keys[0], 0, 1), keys[0]);
}

// The connector's is the same (tests/python/vllm/test_vllm_parts.py).
TEST(RankKey, IsWhatTheConnectorsIs) {
  EXPECT_EQ(RankKey({1, 2}, 1, 2).Hex(), "b4d8367cf34910ab555b0a3f19412c4b");
}

}  // namespace
}  // namespace inferscale
