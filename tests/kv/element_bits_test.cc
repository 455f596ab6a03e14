#include "kv/element_bits.h"

#include <gtest/gtest.h>

#include <cmath>

namespace inferscale {
namespace {

// What a code means, straight from the definition of a format with a sign, `exponent` and
// `mantissa` bits.
double Meaning(uint32_t code, int exponent, int mantissa) {
  const bool negative = (code >> (exponent + mantissa)) != 0;
  const uint32_t e = (code >> mantissa) & ((1U << exponent) - 1);
  const uint32_t m = code & ((1U << mantissa) - 1);
  const int bias = (1 << (exponent - 1)) - 1;
  const double value =
      e == 0 ? std::ldexp(m, 1 - bias - mantissa)
             : std::ldexp(m + (1U << mantissa), static_cast<int>(e) - bias - mantissa);
  return negative ? -value : value;
}

TEST(ElementBits, EveryCodeOf16BitsDecodesAndComesBack) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    if ((code & 0x7C00) == 0x7C00) {
      EXPECT_EQ(std::isnan(DecodeF16(bits)), (code & 0x3FF) != 0);
      EXPECT_EQ(std::isinf(DecodeF16(bits)), (code & 0x3FF) == 0);
    } else {
      ASSERT_EQ(DecodeF16(bits), Meaning(code, 5, 10)) << code;
    }
    if ((code & 0x7F80) == 0x7F80) {
      EXPECT_EQ(std::isnan(DecodeBf16(bits)), (code & 0x7F) != 0);
    } else {
      ASSERT_EQ(DecodeBf16(bits), Meaning(code, 8, 7)) << code;
    }
    if (!std::isnan(DecodeF16(bits))) {
      ASSERT_EQ(EncodeF16(DecodeF16(bits)), bits);
    }
    if (!std::isnan(DecodeBf16(bits))) {
      ASSERT_EQ(EncodeBf16(DecodeBf16(bits)), bits);
    }
  }
}

TEST(ElementBits, EveryCodeOf8BitsDecodesAndComesBack) {
  for (uint32_t code = 0; code < 0x100; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    const float value = DecodeF8E4M3(bits);
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(EncodeF8E4M3(std::copysign(value, (code & 0x80) != 0 ? -1.0 : 1.0)), bits);
    } else {
      EXPECT_EQ(value, Meaning(code, 4, 3)) << code;
      EXPECT_EQ(std::signbit(value), (code & 0x80) != 0);
      EXPECT_EQ(EncodeF8E4M3(value), bits);
    }
    EXPECT_EQ(EncodeI8(static_cast<int8_t>(code)), code == 0x80 ? -127 : static_cast<int8_t>(code));
  }
}

TEST(ElementBits, F8RoundsToTheNearestCodeAndTiesToEven) {
  for (uint32_t code = 0; code < 0x7E; ++code) {
    const double low = Meaning(code, 4, 3), high = Meaning(code + 1, 4, 3);
    const double middle = (low + high) / 2;
    EXPECT_EQ(EncodeF8E4M3(std::nextafter(middle, 0.0)), code);
    EXPECT_EQ(EncodeF8E4M3(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(EncodeF8E4M3(std::nextafter(middle, 1e9)), code + 1);
    EXPECT_EQ(EncodeF8E4M3(-std::nextafter(middle, 1e9)), (code + 1) | 0x80);
  }
}

TEST(ElementBits, F8Saturates) {
  for (const double large : {448.0, 463.9, 464.0, 480.0, 1e30, HUGE_VAL}) {
    EXPECT_EQ(EncodeF8E4M3(large), 0x7E);
    EXPECT_EQ(EncodeF8E4M3(-large), 0xFE);
  }
  EXPECT_EQ(EncodeF8E4M3(std::nan("")), 0x7F);
  EXPECT_EQ(EncodeF8E4M3(0x1p-10), 0);  // a tie with zero
  EXPECT_EQ(EncodeF8E4M3(-0.0), 0x80);
  EXPECT_EQ(EncodeF8E4M3(5e-324), 0);
}

TEST(ElementBits, I8RoundsTiesToEvenAndClamps) {
  for (int i = -127; i < 127; ++i) {
    const double middle = i + 0.5;
    EXPECT_EQ(EncodeI8(middle), i % 2 == 0 ? i : i + 1);
    EXPECT_EQ(EncodeI8(std::nextafter(middle, -1e9)), i);
    EXPECT_EQ(EncodeI8(std::nextafter(middle, 1e9)), i + 1);
  }
  EXPECT_EQ(EncodeI8(1e30), 127);
  EXPECT_EQ(EncodeI8(-HUGE_VAL), -127);
  EXPECT_EQ(EncodeI8(-127.9), -127);
  EXPECT_EQ(EncodeI8(std::nan("")), 0);
}

static_assert(EncodeF16(65520.0) == 0x7C00 && EncodeF16(65519.99) == 0x7BFF);
static_assert(EncodeBf16(1 + 0x1p-8) == 0x3F80 && EncodeBf16(3.4e38) == 0x7F80);
static_assert(DecodeF16(0x0001) == 0x1p-24F && DecodeF8E4M3(0x01) == 0x1p-9F);

}  // namespace
}  // namespace inferscale
