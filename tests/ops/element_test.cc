#include "ops/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "../kv/seed.h"

namespace inferscale {
namespace {

uint32_t Bits(double value, Dtype dtype) {
  uint32_t bits = 0;
  WriteElement(reinterpret_cast<std::byte*>(&bits), dtype, 0, value);
  return bits;
}

TEST(Element, F16KnownAnswers) {
  EXPECT_EQ(Bits(1.0, Dtype::kF16), 0x3C00U);
  EXPECT_EQ(Bits(-2.0, Dtype::kF16), 0xC000U);
  EXPECT_EQ(Bits(65504.0, Dtype::kF16), 0x7BFFU);
  EXPECT_EQ(Bits(65519.99, Dtype::kF16), 0x7BFFU);
  EXPECT_EQ(Bits(65520.0, Dtype::kF16), 0x7C00U);
  EXPECT_EQ(Bits(0x1p-24, Dtype::kF16), 0x0001U);
  EXPECT_EQ(Bits(0x1p-25, Dtype::kF16), 0x0000U);      // a tie, to even
  EXPECT_EQ(Bits(0x1.8p-24, Dtype::kF16), 0x0002U);    // a tie, to even
  EXPECT_EQ(Bits(0x1.FFCp-15, Dtype::kF16), 0x0400U);  // subnormal, rounds up to normal
  EXPECT_EQ(Bits(1 + 0x1p-11, Dtype::kF16), 0x3C00U);
  EXPECT_EQ(Bits(1 + 0x1.8p-10, Dtype::kF16), 0x3C02U);
  EXPECT_EQ(Bits(-0.0, Dtype::kF16), 0x8000U);
  EXPECT_EQ(Bits(-HUGE_VAL, Dtype::kF16), 0xFC00U);
  EXPECT_EQ(Bits(std::nan(""), Dtype::kF16), 0x7E00U);
}

TEST(Element, BF16KnownAnswers) {
  EXPECT_EQ(Bits(1.0, Dtype::kBF16), 0x3F80U);
  EXPECT_EQ(Bits(1 + 0x1p-8, Dtype::kBF16), 0x3F80U);
  EXPECT_EQ(Bits(1 + 0x1.8p-7, Dtype::kBF16), 0x3F82U);
  EXPECT_EQ(Bits(3.4e38, Dtype::kBF16), 0x7F80U);
}

TEST(Element, EveryHalfRoundTrips) {
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBF16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double value = ReadElement(reinterpret_cast<const std::byte*>(&bits), dtype, 0);
      if (std::isnan(value)) continue;
      ASSERT_EQ(Bits(value, dtype), bits);
    }
  }
}

TEST(Element, F32IsTheCompilers) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 100000; ++round) {
    const double value = random.Normal() * std::exp2(random.Between(-160.0, 130.0)) * 1.0000000123;
    const auto rounded = static_cast<float>(value);
    ASSERT_EQ(Bits(value, Dtype::kF32), std::bit_cast<uint32_t>(rounded));
    const double back = ReadElement(reinterpret_cast<const std::byte*>(&rounded), Dtype::kF32, 0);
    ASSERT_EQ(back, double{rounded});
  }
}

}  // namespace
}  // namespace inferscale
