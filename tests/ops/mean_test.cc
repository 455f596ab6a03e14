#include "ops/mean/mean.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/element.h"
#include "transfer_case.h"

namespace inferscale {
namespace {

using Bytes = std::vector<std::byte>;

constexpr Dtype kPlain[] = {Dtype::kF32, Dtype::kF16, Dtype::kBF16};

Bytes RandomArray(Random& random, Dtype dtype, size_t elements) {
  Bytes bytes(elements * DtypeSize(dtype));
  for (size_t i = 0; i < elements; ++i) {
    const double value = random.Chance(0.03) ? random.Pick({0.0, -0.0, HUGE_VAL, 6e-8, 6e4})
                                             : double{random.Normal()};
    WriteElement(bytes.data(), dtype, i, value);
  }
  return bytes;
}

TEST(Mean, AgreesWithTheReferenceToTheBit) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 300; ++round) {
    for (const Dtype dtype : kPlain) {
      const auto elements = random.Between<size_t>(0, 90);
      const auto count = random.Between<uint32_t>(1, 9);
      const Bytes next = RandomArray(random, dtype, elements);
      Bytes fast = RandomArray(random, dtype, elements);
      Bytes plain = fast;
      ASSERT_TRUE(AddToMean(dtype, next, count, fast));
      ASSERT_TRUE(AddToMeanReference(dtype, next, count, plain));
      for (size_t i = 0; i < elements; ++i) {
        const double a = ReadElement(fast.data(), dtype, i);
        const double b = ReadElement(plain.data(), dtype, i);
        ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << a << " " << b << " of " << count;
      }
    }
  }
}

TEST(Mean, OneAfterAnotherGivesTheMean) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (const Dtype dtype : kPlain) {
    constexpr size_t kElements = 50;
    std::vector<double> sums(kElements, 0.0);
    Bytes mean(kElements * DtypeSize(dtype));
    for (uint32_t count = 1; count <= 8; ++count) {
      Bytes next(mean.size());
      for (size_t i = 0; i < kElements; ++i)
        WriteElement(next.data(), dtype, i, double{random.Normal()});
      for (size_t i = 0; i < kElements; ++i) sums[i] += ReadElement(next.data(), dtype, i);
      ASSERT_TRUE(AddToMean(dtype, next, count, mean));
    }
    // Eight roundings of numbers below 4.
    const double unit = dtype == Dtype::kF32 ? 0x1p-22 : dtype == Dtype::kF16 ? 0x1p-10 : 0x1p-7;
    for (size_t i = 0; i < kElements; ++i) {
      EXPECT_NEAR(ReadElement(mean.data(), dtype, i), sums[i] / 8, 8 * unit);
    }
  }
}

TEST(Mean, RefusesWhatHasNone) {
  Bytes four(4);
  Bytes six(6);
  EXPECT_EQ(AddToMean(Dtype::kF16, four, 2, six).error().code, Code::kInvalid);
  EXPECT_EQ(AddToMean(Dtype::kF32, six, 2, six).error().code, Code::kInvalid);
  EXPECT_EQ(AddToMean(Dtype::kF16, four, 0, four).error().code, Code::kInvalid);
  EXPECT_EQ(AddToMean(Dtype::kI8, four, 2, four).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace inferscale
