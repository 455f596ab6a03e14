// The GPU's topk, run thread by thread on the host, against the reference.
#include "ops/topk/topk_cuda.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "../kv/seed.h"
#include "kv/element_bits.h"
#include "ops/cuda/emulate.h"
#include "ops/topk/topk.h"

namespace inferscale::cuda {
namespace {

constexpr uint32_t kNoRow = 0xFFFFFFFF;

struct User {
  uint32_t count = 0;
  std::unique_ptr<Vec16[]> rows;  // exactly as long as its rows, so that AddressSanitizer sees all
  std::vector<float> query;
  std::vector<uint64_t> allowed;  // empty: all
};

// A batch of searches with its results.
class Batch {
 public:
  Batch(uint32_t dims, uint32_t k, Dtype dtype) : dims_(dims), k_(k), dtype_(dtype) {}

  template <typename Value>
  User& Add(uint32_t count, Value value) {
    User& user = users_.emplace_back();
    user.count = count;
    user.rows = std::make_unique<Vec16[]>(size_t{count} * dims_ * DtypeSize(dtype_) / 16);
    for (uint32_t row = 0; row < count; ++row) {
      for (uint32_t d = 0; d < dims_; ++d) Set(user, row, d, value());
    }
    for (uint32_t d = 0; d < dims_; ++d) user.query.push_back(value());
    return user;
  }
  void Set(User& user, uint32_t row, uint32_t d, float value) const {
    const size_t index = size_t{row} * dims_ + d;
    if (dtype_ == Dtype::kF16) {
      reinterpret_cast<uint16_t*>(user.rows.get())[index] = EncodeF16(value);
    } else {
      reinterpret_cast<float*>(user.rows.get())[index] = value;
    }
  }
  User& user(size_t i) { return users_[i]; }
  uint32_t dims() const { return dims_; }
  uint32_t k() const { return k_; }

  template <uint32_t kThreads = 128, uint32_t kRows = 4>
  void Run(const TopKDevice& device, Random& random) {
    std::vector<PluginSearch> searches;
    for (const User& user : users_) {
      searches.push_back({user.rows.get(), user.query.data(),
                          user.allowed.empty() ? nullptr : user.allowed.data(), user.count});
    }
    rows_.assign(searches.size() * k_, 12345);
    scores_.assign(searches.size() * k_, 12345);
    PluginTopK topk{searches.data(),
                    static_cast<uint32_t>(searches.size()),
                    dims_,
                    k_,
                    static_cast<uint8_t>(dtype_),
                    rows_.data(),
                    scores_.data(),
                    nullptr};
    ASSERT_TRUE(CanTopK(topk));
    const uint64_t bytes = TopKWorkspaceBytes(topk, device);
    const auto workspace = std::make_unique<uint64_t[]>(bytes / sizeof(uint64_t));
    std::fill_n(workspace.get() + kTopKTicketBytes / sizeof(uint64_t),
                (bytes - kTopKTicketBytes) / sizeof(uint64_t), ~uint64_t{0});
    topk.workspace = workspace.get();
    const auto seed = random.Between(0U, 1U << 30);
    const int error = ForEachTopKLaunch(topk, [&](auto part, uint32_t first) {
      if (part.size() <= kTopKSmallLaunch) {
        Launch<kThreads, kRows, kTopKSmallLaunch>(topk, part, first, device, seed);
      } else {
        Launch<kThreads, kRows, kTopKLargeLaunch>(topk, part, first, device, seed);
      }
      return 0;
    });
    ASSERT_EQ(error, 0);
    for (size_t i = 0; i < kTopKTicketBytes / sizeof(uint64_t); ++i) ASSERT_EQ(workspace[i], 0U);
  }

  std::vector<Scored> Result(size_t i) const {
    std::vector<Scored> found;
    for (size_t rank = i * k_; rank < (i + 1) * k_ && rows_[rank] != kNoRow; ++rank) {
      found.push_back({rows_[rank], scores_[rank]});
    }
    for (size_t rank = i * k_ + found.size(); rank < (i + 1) * k_; ++rank) {
      EXPECT_EQ(rows_[rank], kNoRow);
      EXPECT_EQ(scores_[rank], -std::numeric_limits<float>::infinity());
    }
    return found;
  }
  std::vector<Scored> Want(size_t i, uint32_t k) const {
    const User& user = users_[i];
    const VectorRows rows{reinterpret_cast<const std::byte*>(user.rows.get()), user.count, dims_,
                          dtype_};
    return TopKReference(rows, user.query, k, user.allowed);
  }
  size_t size() const { return users_.size(); }

  // Exactly, or, where sums are rounded, rank by rank: the order is the reference's wherever its
  // scores are further apart than rounding.
  void Check(bool exact) const {
    for (size_t i = 0; i < size(); ++i) {
      const std::vector<Scored> got = Result(i), want = Want(i, k_);
      if (exact) {
        ASSERT_EQ(got, want) << "search " << i;
        continue;
      }
      ASSERT_EQ(got.size(), want.size()) << "search " << i;
      const double tolerance = dims_ * 0x1p-18;
      const std::vector<Scored> more = Want(i, k_ + 1);
      for (size_t rank = 0; rank < want.size(); ++rank) {
        ASSERT_NEAR(got[rank].score, want[rank].score, tolerance) << "search " << i;
        const bool apart =
            (rank == 0 || more[rank - 1].score - more[rank].score > 2 * tolerance) &&
            (rank + 1 >= more.size() || more[rank].score - more[rank + 1].score > 2 * tolerance);
        if (apart) {
          ASSERT_EQ(got[rank].row, want[rank].row) << "search " << i << " rank " << rank;
        }
      }
    }
  }

 private:
  template <uint32_t kThreads, uint32_t kRows, uint32_t kMaxSearches>
  void Launch(const PluginTopK& topk, std::span<const PluginSearch> part, uint32_t first,
              const TopKDevice& device, uint32_t seed) const {
    const auto params = std::make_unique<TopKParams<kMaxSearches>>(
        MakeTopKParams<kMaxSearches>(topk, part, first, device));
    const bool half = dtype_ == Dtype::kF16;
    Emulate({.grid = {params->blocks},
             .block = {kThreads},
             .dynamic_shared = TopKSharedBytes(dims_, half),
             .seed = seed},
            [&] {
              if (half) {
                TopKBody<true, kThreads, kRows, kMaxSearches>(*params).Run();
              } else {
                TopKBody<false, kThreads, kRows, kMaxSearches>(*params).Run();
              }
            });
  }

  const uint32_t dims_, k_;
  const Dtype dtype_;
  std::vector<User> users_;
  std::vector<uint32_t> rows_;
  std::vector<float> scores_;
};

std::vector<uint64_t> RandomBitmap(Random& random, uint32_t count, double share) {
  std::vector<uint64_t> bits((count + 63) / 64);
  for (uint64_t& word : bits) {
    for (int bit = 0; bit < 64; ++bit) word |= uint64_t{random.Chance(share)} << bit;
  }
  return bits;
}

Batch RandomBatch(Random& random, uint32_t most_rows, bool whole_numbers) {
  Batch batch(8 * random.Between(1U, random.Chance(0.2) ? 64U : 8U),
              random.Between(1U, random.Chance(0.5) ? kTopKMaxK : 8U),
              random.Pick({Dtype::kF16, Dtype::kF32}));
  const auto users = random.Between(1, 5);
  for (int i = 0; i < users; ++i) {
    const uint32_t count =
        random.Chance(0.2) ? random.Between(0U, 3U) : random.Between(0U, most_rows);
    User& user = batch.Add(count, [&]() -> float {
      return whole_numbers ? static_cast<float>(random.Between(-1, 1)) : random.Normal();
    });
    if (count > 0 && random.Chance(0.4)) {
      user.allowed = RandomBitmap(random, count, random.Between(0.0, 1.0));
    }
  }
  return batch;
}

TEST(TopKCuda, EqualsTheReference) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 8; ++round) {
    Batch batch = RandomBatch(random, 300, false);
    batch.Run({random.Between(1U, 20U)}, random);
    batch.Check(false);
    if (HasFatalFailure()) return;
  }
}

// Sums of small whole numbers are exact in any order, and many are equal.
TEST(TopKCuda, TiesGoToTheSmallerRow) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 8; ++round) {
    Batch batch = RandomBatch(random, 300, true);
    batch.Run<64, 2>({random.Between(1U, 20U)}, random);
    batch.Check(true);
    if (HasFatalFailure()) return;
  }
}

// More candidates than the merge looks at together, so that it goes on with what it has.
TEST(TopKCuda, MergesManyTiles) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (const bool rising : {false, true}) {
    Batch batch(8, 100, Dtype::kF32);
    User& user = batch.Add(1500, [&] { return static_cast<float>(random.Between(-30, 30)); });
    if (rising) {
      // All the best are in the last tiles, and every merge finds better ones.
      for (uint32_t row = 0; row < user.count; ++row) {
        for (uint32_t d = 0; d < 8; ++d) batch.Set(user, row, d, static_cast<float>(row / 3));
      }
      user.query.assign(8, 1);
    }
    batch.Run({1000}, random);
    batch.Check(true);
    if (HasFatalFailure()) return;
  }
}

TEST(TopKCuda, EqualRowsHaveEqualScores) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  Batch batch(104, 100, Dtype::kF16);
  std::vector<float> row(104);
  for (float& value : row) value = random.Normal();
  size_t next = 0;
  User& user = batch.Add(300, [&] { return row[next++ % row.size()]; });
  user.allowed = RandomBitmap(random, 300, 0.7);
  batch.Run({7}, random);
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
  Batch batch(8, 10, Dtype::kF16);
  User& user = batch.Add(7, [] { return 0.0F; });
  user.query.assign(8, 1);
  batch.Set(user, 0, 1, 1);
  batch.Set(user, 1, 2, kNan);
  batch.Set(user, 2, 1, kInfinity);
  batch.Set(user, 3, 1, -kInfinity);
  batch.Set(user, 4, 1, 2);
  for (uint32_t d = 0; d < 8; ++d) batch.Set(user, 5, d, -0.0F);
  batch.Run({4}, random);
  const std::vector<Scored> want{{2, kInfinity}, {4, 2}, {0, 1}, {5, 0}, {6, 0}, {3, -kInfinity}};
  EXPECT_EQ(batch.Result(0), want);
  user.query[3] = kNan;
  batch.Run({4}, random);
  EXPECT_TRUE(batch.Result(0).empty());
}

TEST(TopKCuda, LargestDims) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (const Dtype dtype : {Dtype::kF16, Dtype::kF32}) {
    Batch batch(kTopKMaxDims, 3, dtype);
    batch.Add(20, [&] { return static_cast<float>(random.Between(-2, 2)); });
    batch.Run({2}, random);
    batch.Check(true);
  }
}

TEST(TopKCuda, MoreSearchesThanALaunchHolds) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (const uint32_t users : {kTopKSmallLaunch + 1, kTopKLargeLaunch + 3}) {
    Batch batch(8, 2, Dtype::kF32);
    for (uint32_t i = 0; i < users; ++i) {
      batch.Add(random.Chance(0.01) ? 150 : random.Between(0U, 4U),
                [&] { return static_cast<float>(random.Between(-3, 3)); });
    }
    batch.Run<32, 2>({2000}, random);
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
