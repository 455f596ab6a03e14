// The GPU's topk, run thread by thread on the host over devices of many sizes, against the
// reference.
#include <gtest/gtest.h>

#include <array>
#include <functional>
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

void SetScores(TopKCase& batch, TopKUser& user, const std::function<uint32_t(uint32_t)>& score) {
  for (uint32_t row = 0; row < user.count; ++row) {
    batch.Set(user, row, 3, static_cast<float>(score(row)));
  }
  user.query.assign(8, 0);
  user.query[3] = 1;
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

// With more results than a block has threads every key is looked at, of which there are more than
// there is room for: by one, or by many.
TEST(TopKCuda, MoreKeysThanThereIsRoomFor) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (const uint32_t rows : {513U, 1500U}) {
    for (const bool rising : {false, true}) {
      TopKCase batch(8, 100, Dtype::kF32);
      TopKUser& user = batch.Add(rows, [&] { return static_cast<float>(random.Between(-30, 30)); });
      if (rising) SetScores(batch, user, [](uint32_t row) { return row / 3; });
      Emulate(batch, {1000}, random);
      batch.Check(true);
      if (HasFatalFailure()) return;
    }
  }
}

// So many rows that only those of the best warps are looked at.
TEST(TopKCuda, ManyRows) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  constexpr uint32_t kRows = 9201, kBlocks = 64, kWarps = 2 * kBlocks, kStepRows = 8;
  const auto scores = std::to_array<std::function<uint32_t(uint32_t)>>(
      {[&](uint32_t) { return random.Between(0U, 2000U); }, [](uint32_t row) { return row; },
       [](uint32_t row) { return kRows - row; }, [](uint32_t) { return 5U; },
       // All the best are of a few warps: more than there is room for.
       [](uint32_t row) { return row / kStepRows % kWarps < 10 ? 1000 + row % 7 : row % 1000; }});
  TopKCase batch(8, 40, Dtype::kF32);
  TopKUser& user = batch.Add(kRows, [] { return 0.0F; });
  for (const auto& score : scores) {
    SetScores(batch, user, score);
    user.allowed = RandomBitmap(random, kRows, random.Chance(0.5) ? 0.95 : 0.01);
    if (random.Chance(0.5)) user.allowed.clear();
    Emulate(batch, {kBlocks}, random);
    batch.Check(true);
    if (HasFatalFailure()) return;
  }
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
