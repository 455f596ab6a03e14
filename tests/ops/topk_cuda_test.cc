// The GPU's topk, run thread by thread on the host over devices of many sizes, against the
// reference.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "emulated_topk.h"
#include "topk_case.h"

namespace inferscale::cuda {
namespace {

void Emulate(TopKCase& batch, const TopKDevice& device, Random& random) {
  const auto seed = random.Between(0U, 1U << 30);
  batch.RunOnHost(device, [&](const PluginTopK& topk) { return EmulateTopK(topk, device, seed); });
}

TEST(TopKCuda, EqualsTheReference) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 8; ++round) {
    TopKCase batch = TopKCase::Make(random, 300, false);
    Emulate(batch, {random.Between(1U, 20U)}, random);
    batch.Check(false);
    if (HasFatalFailure()) return;
  }
}

// Sums of small whole numbers are exact in any order, and many are equal.
TEST(TopKCuda, TiesGoToTheSmallerRow) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 8; ++round) {
    TopKCase batch = TopKCase::Make(random, 300, true);
    Emulate(batch, {random.Between(1U, 20U)}, random);
    batch.Check(true);
    if (HasFatalFailure()) return;
  }
}

// More candidates than the merge looks at together, so that it goes on with what it has.
TEST(TopKCuda, MergesManyTiles) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (const bool rising : {false, true}) {
    TopKCase batch(8, 100, Dtype::kF32);
    TopKUser& user = batch.Add(1500, [&] { return static_cast<float>(random.Between(-30, 30)); });
    if (rising) {
      // All the best are in the last tiles, and every merge finds better ones.
      for (uint32_t row = 0; row < user.count; ++row) {
        for (uint32_t d = 0; d < 8; ++d) batch.Set(user, row, d, static_cast<float>(row / 3));
      }
      user.query.assign(8, 1);
    }
    Emulate(batch, {1000}, random);
    batch.Check(true);
    if (HasFatalFailure()) return;
  }
}

// So many tiles that a look at 512 candidates of the merge sees only some of them: those of the
// winning tile are seen in the first and the third look.
TEST(TopKCuda, MergeGoesOnUntilAllTilesAreSeen) {
  Random random(1);
  constexpr uint32_t kTiles = 520, kWinner = 510;
  TopKCase batch(8, 3, Dtype::kF16);
  TopKUser& user = batch.Add(kTiles * kTopKMinTile, [] { return 0.0F; });
  user.query.assign(8, 1);
  for (uint32_t i = 0; i < 3; ++i) {
    batch.Set(user, kWinner * kTopKMinTile + i, i, static_cast<float>(1 + i));
  }
  batch.Set(user, 7, 0, 0.5F);
  batch.Set(user, 7 + kTopKMinTile, 0, 0.25F);
  Emulate(batch, {kTiles}, random);
  batch.Check(true);
}

TEST(TopKCuda, EqualRowsHaveEqualScores) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  TopKCase batch(104, 100, Dtype::kF16);
  std::vector<float> row(104);
  for (float& value : row) value = random.Normal();
  size_t next = 0;
  TopKUser& user = batch.Add(300, [&] { return row[next++ % row.size()]; });
  user.allowed = RandomBitmap(random, 300, 0.7);
  Emulate(batch, {7}, random);
  const std::vector<Scored> got = batch.Result(0);
  ASSERT_EQ(got.size(), 100U);
  for (size_t i = 1; i < got.size(); ++i) {
    EXPECT_EQ(got[i].score, got[0].score);
    EXPECT_LT(got[i - 1].row, got[i].row);
  }
}

TEST(TopKCuda, RowsWithoutAScoreAreLeftOut) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Random random(1);
  TopKCase batch(128, 10, Dtype::kF16);
  TopKUser& user = batch.Add(7, [] { return 0.0F; });
  user.query.assign(128, 1);
  batch.Set(user, 0, 1, 1);
  batch.Set(user, 1, 2, kNan);
  batch.Set(user, 2, 1, kInfinity);
  batch.Set(user, 3, 1, -kInfinity);
  batch.Set(user, 4, 1, 2);
  // Of row 5 all lanes' sums are -2^-173, which is -0 and equals row 6's 0.
  for (uint32_t d = 7; d < 128; d += 8) {
    batch.Set(user, 5, d, 0x1p-24F);
    user.query[d] = -0x1p-149F;
  }
  Emulate(batch, {4}, random);
  const std::vector<Scored> want{{2, kInfinity}, {4, 2}, {0, 1}, {5, 0}, {6, 0}, {3, -kInfinity}};
  EXPECT_EQ(batch.Result(0), want);
  user.query[3] = kNan;
  Emulate(batch, {4}, random);
  EXPECT_TRUE(batch.Result(0).empty());
}

TEST(TopKCuda, LargestDims) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (const Dtype dtype : {Dtype::kF16, Dtype::kF32}) {
    TopKCase batch(kTopKMaxDims, 3, dtype);
    batch.Add(20, [&] { return static_cast<float>(random.Between(-2, 2)); });
    Emulate(batch, {2}, random);
    batch.Check(true);
  }
}

TEST(TopKCuda, MoreSearchesThanALaunchHolds) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (const uint32_t users : {kTopKSmallLaunch + 1, kTopKLargeLaunch + 3}) {
    TopKCase batch(8, 2, Dtype::kF32);
    for (uint32_t i = 0; i < users; ++i) {
      batch.Add(random.Chance(0.01) ? 150 : random.Between(0U, 4U),
                [&] { return static_cast<float>(random.Between(-3, 3)); });
    }
    Emulate(batch, {2000}, random);
    batch.Check(true);
    if (HasFatalFailure()) return;
  }
}

TEST(TopKPlan, FillsTheDeviceAWholeNumberOfTimes) {
  const std::vector<PluginSearch> users(64, {nullptr, nullptr, nullptr, 2500});
  const uint32_t tile = TopKTileRows(users, {528});
  EXPECT_LE(TopKBlocks(users, tile), 528U);
  EXPECT_GT(TopKBlocks(users, tile), 528U * 9 / 10);
  const PluginSearch large{nullptr, nullptr, nullptr, 1'000'000};
  const uint64_t blocks = TopKBlocks({&large, 1}, TopKTileRows({&large, 1}, {528}));
  EXPECT_LE(blocks, 1056U);
  EXPECT_GT(blocks, 1000U);
  EXPECT_EQ(TopKTileRows({}, {528}), kTopKMinTile);
}

TEST(TopKPlan, RefusesWhatTheKernelsCannotDo) {
  const PluginSearch search{nullptr, nullptr, nullptr, 5};
  const PluginTopK good{&search, 1,       384,    50, static_cast<uint8_t>(Dtype::kF16),
                        nullptr, nullptr, nullptr};
  EXPECT_TRUE(CanTopK(good));
  const auto refused = [&](auto change) {
    PluginTopK topk = good;
    change(topk);
    return !CanTopK(topk);
  };
  EXPECT_TRUE(refused([](PluginTopK& t) { t.dims = 12; }));
  EXPECT_TRUE(refused([](PluginTopK& t) { t.dims = 0; }));
  EXPECT_TRUE(refused([](PluginTopK& t) { t.dims = kTopKMaxDims + 8; }));
  EXPECT_TRUE(refused([](PluginTopK& t) { t.k = 0; }));
  EXPECT_TRUE(refused([](PluginTopK& t) { t.k = kTopKMaxK + 1; }));
  EXPECT_TRUE(refused([](PluginTopK& t) { t.row_dtype = static_cast<uint8_t>(Dtype::kBF16); }));
  PluginSearch huge = search;
  huge.count = kTopKMaxRows + 1;
  EXPECT_TRUE(refused([&](PluginTopK& t) { t.searches = &huge; }));
}

}  // namespace
}  // namespace inferscale::cuda
