#include "ops/topk/topk.h"

#include <faiss/IndexFlat.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "../kv/seed.h"
#include "ops/element.h"

namespace inferscale {
namespace {

struct Rows {
  Rows(size_t row_count, uint32_t row_dims, Dtype row_dtype)
      : count(row_count), dims(row_dims), dtype(row_dtype), data(count * dims * DtypeSize(dtype)) {}

  VectorRows view() const { return {data.data(), count, dims, dtype}; }
  float Get(size_t row, uint32_t d) const {
    return static_cast<float>(ReadElement(data.data(), dtype, row * dims + d));
  }
  void Set(size_t row, uint32_t d, double value) {
    WriteElement(data.data(), dtype, row * dims + d, value);
  }
  template <typename Value>
  void Generate(Value value) {
    for (size_t i = 0; i < count * dims; ++i) WriteElement(data.data(), dtype, i, value());
  }

  size_t count;
  uint32_t dims;
  Dtype dtype;
  std::vector<std::byte> data;
};

std::vector<uint64_t> RandomBitmap(Random& random, size_t count, double share) {
  std::vector<uint64_t> bits((count + 63) / 64);
  for (uint64_t& word : bits) {
    for (int bit = 0; bit < 64; ++bit) word |= uint64_t{random.Chance(share)} << bit;
  }
  return bits;  // the bits behind the last row are random too: they mean nothing
}

// The order of summation differs, so scores may differ by this much.
double Tolerance(const Rows& rows, std::span<const float> query) {
  double largest = 0;
  for (size_t row = 0; row < rows.count; ++row) {
    double sum = 0;
    for (uint32_t d = 0; d < rows.dims; ++d) sum += std::abs(query[d] * rows.Get(row, d));
    largest = std::max(largest, sum);
  }
  return largest * 0x1p-20;
}

// Rank by rank the same score within the tolerance, and each row's score is its own.
void ExpectSameRanking(const Rows& rows, std::span<const float> query,
                       const std::vector<Scored>& got, const std::vector<Scored>& want) {
  const double tolerance = Tolerance(rows, query);
  ASSERT_EQ(got.size(), want.size());
  std::set<uint32_t> seen;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i].score, want[i].score, tolerance) << "rank " << i;
    ASSERT_LT(got[i].row, rows.count);
    ASSERT_TRUE(seen.insert(got[i].row).second) << "row " << got[i].row << " twice";
    double score = 0;
    for (uint32_t d = 0; d < rows.dims; ++d) score += query[d] * rows.Get(got[i].row, d);
    ASSERT_NEAR(got[i].score, score, tolerance) << "row " << got[i].row;
    if (i > 0) {
      ASSERT_TRUE(got[i - 1].score > got[i].score ||
                  (got[i - 1].score == got[i].score && got[i - 1].row < got[i].row));
    }
  }
}

std::vector<float> RandomQuery(Random& random, uint32_t dims) {
  std::vector<float> query(dims);
  for (float& value : query) value = random.Normal();
  return query;
}

TEST(TopK, EqualsTheReference) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 200; ++round) {
    Rows rows(random.Between<size_t>(0, 700), random.Between<uint32_t>(1, 400),
              random.Pick({Dtype::kF32, Dtype::kF16, Dtype::kBF16}));
    rows.Generate([&] { return random.Normal(); });
    const std::vector<float> query = RandomQuery(random, rows.dims);
    const auto k = random.Between<size_t>(0, 300);
    std::vector<uint64_t> allowed;
    if (random.Chance(0.5)) allowed = RandomBitmap(random, rows.count, random.Between(0.0, 1.0));
    const std::vector<Scored> got = TopK(rows.view(), query, k, allowed);
    ExpectSameRanking(rows, query, got, TopKReference(rows.view(), query, k, allowed));
    if (HasFatalFailure()) return;
    for (const Scored& scored : got) {
      ASSERT_TRUE(allowed.empty() || (allowed[scored.row / 64] >> (scored.row % 64) & 1) == 1);
    }
  }
}

// Small whole numbers: float sums are exact in any order, so rows and ties must be equal too.
TEST(TopK, TiesGoToTheSmallerRow) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 300; ++round) {
    Rows rows(random.Between<size_t>(1, 500), random.Between<uint32_t>(1, 40),
              random.Pick({Dtype::kF32, Dtype::kF16}));
    rows.Generate([&] { return random.Between(-1, 1); });
    std::vector<float> query(rows.dims);
    for (float& value : query) value = static_cast<float>(random.Between(-1, 1));
    const auto k = random.Between<size_t>(1, 100);
    std::vector<uint64_t> allowed;
    if (random.Chance(0.5)) allowed = RandomBitmap(random, rows.count, 0.5);
    ASSERT_EQ(TopK(rows.view(), query, k, allowed), TopKReference(rows.view(), query, k, allowed));
  }
}

TEST(TopK, EqualRowsHaveEqualScores) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  Rows rows(203, 77, Dtype::kF16);
  for (uint32_t d = 0; d < rows.dims; ++d) {
    const double value = random.Normal();
    for (size_t row = 0; row < rows.count; ++row) rows.Set(row, d, value);
  }
  const std::vector<float> query = RandomQuery(random, rows.dims);
  const auto allowed = RandomBitmap(random, rows.count, 0.7);
  const std::vector<Scored> got = TopK(rows.view(), query, 50, allowed);
  ASSERT_EQ(got.size(), 50U);
  for (size_t i = 1; i < got.size(); ++i) {
    EXPECT_EQ(got[i].score, got[0].score);
    EXPECT_LT(got[i - 1].row, got[i].row);
  }
}

TEST(TopK, AgreesWithFaiss) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 20; ++round) {
    Rows rows(random.Between<size_t>(50, 3000), random.Pick({64U, 384U, 100U}),
              random.Pick({Dtype::kF32, Dtype::kF16}));
    rows.Generate([&] { return random.Normal(); });
    const std::vector<float> query = RandomQuery(random, rows.dims);
    const auto k = random.Between<size_t>(1, 50);
    std::vector<float> floats;
    for (size_t row = 0; row < rows.count; ++row) {
      for (uint32_t d = 0; d < rows.dims; ++d) floats.push_back(rows.Get(row, d));
    }
    faiss::IndexFlatIP index(rows.dims);
    index.add(static_cast<faiss::Index::idx_t>(rows.count), floats.data());
    std::vector<float> scores(k);
    std::vector<faiss::Index::idx_t> ids(k);
    index.search(1, query.data(), static_cast<faiss::Index::idx_t>(k), scores.data(), ids.data());
    std::vector<Scored> want;
    for (size_t i = 0; i < k; ++i) want.push_back({static_cast<uint32_t>(ids[i]), scores[i]});
    ExpectSameRanking(rows, query, TopK(rows.view(), query, k), want);
    if (HasFatalFailure()) return;
  }
}

TEST(TopK, RowsWithoutAScoreAreLeftOut) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Rows rows(6, 3, Dtype::kF16);
  rows.Set(0, 1, 1);
  rows.Set(1, 2, kNan);
  rows.Set(2, 1, kInfinity);
  rows.Set(3, 1, -kInfinity);
  rows.Set(4, 1, 2);
  const std::vector<float> query{1, 1, 1};
  const std::vector<Scored> want{{2, kInfinity}, {4, 2}, {0, 1}, {5, 0}, {3, -kInfinity}};
  EXPECT_EQ(TopK(rows.view(), query, 10), want);
  EXPECT_EQ(TopKReference(rows.view(), query, 10), want);
  EXPECT_TRUE(TopK(rows.view(), std::vector<float>{1, kNan, 1}, 10).empty());
}

TEST(TopK, NothingGivesNothing) {
  const Rows rows(10, 4, Dtype::kF16);
  const std::vector<float> query(4);
  EXPECT_TRUE(TopK(rows.view(), query, 0).empty());
  EXPECT_TRUE(TopK({nullptr, 0, 4, Dtype::kF16}, query, 3).empty());
  EXPECT_TRUE(TopK(rows.view(), query, 3, std::vector<uint64_t>{0}).empty());
  EXPECT_EQ(TopK(rows.view(), query, 30).size(), 10U);
}

}  // namespace
}  // namespace inferscale
