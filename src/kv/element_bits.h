// The bits of f32, f16, bf16, f8 e4m3 and int8 elements, encoded and decoded in plain C++ that host
// and device compilers take alike.
//
// f8 e4m3 is the format of the Open Compute Project (OFP8, 2023): bias 7, no infinities, largest
// 448, and S.1111.111 is NaN.
#ifndef INFERSCALE_KV_ELEMENT_BITS_H_
#define INFERSCALE_KV_ELEMENT_BITS_H_

#include <bit>
#include <cstdint>

namespace inferscale {

inline constexpr float kF8Max = 448.0F;
inline constexpr float kI8Max = 127.0F;

// Sign, exponent, mantissa, from the highest bit down.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  uint32_t overflow;  // what too large a magnitude becomes: infinity, or the largest number
  uint32_t nan;

  constexpr int Smallest() const { return 2 - (1 << (exponent_bits - 1)); }  // exponent of normals
  constexpr uint32_t SignBit() const { return 1U << (exponent_bits + mantissa_bits); }
};

inline constexpr FloatFormat kFormatF32{8, 23, 0x7F800000, 0x7FC00000};
inline constexpr FloatFormat kFormatF16{5, 10, 0x7C00, 0x7E00};
inline constexpr FloatFormat kFormatBf16{8, 7, 0x7F80, 0x7FC0};
inline constexpr FloatFormat kFormatF8E4M3{4, 3, 0x7E, 0x7F};

// Rounds once, to nearest with ties to even. A float is exact as a double.
constexpr uint32_t EncodeFloat(double value, const FloatFormat& format) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const uint32_t sign = (bits >> 63) != 0 ? format.SignBit() : 0;
  const auto exponent_field = static_cast<int>((bits >> 52) & 0x7FF);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (exponent_field == 0x7FF) return sign | (fraction != 0 ? format.nan : format.overflow);
  if (exponent_field == 0) return sign;  // less than half of any format's smallest step
  const uint64_t significand = fraction | (uint64_t{1} << 52);
  const int exponent = exponent_field - 1023;
  const int smallest = format.Smallest();
  // In units of the last mantissa bit; subnormals share the smallest exponent.
  const int below = exponent < smallest ? smallest - exponent : 0;
  const int drop = 52 - format.mantissa_bits + below < 54 ? 52 - format.mantissa_bits + below : 54;
  const uint64_t odd = (significand >> drop) & 1;
  const uint64_t units = (significand + (uint64_t{1} << (drop - 1)) - 1 + odd) >> drop;
  // A carry out of the mantissa lands in the exponent, which is just what rounding up means.
  const uint64_t rounded =
      units + (static_cast<uint64_t>(exponent + below - smallest) << format.mantissa_bits);
  return sign | (rounded < format.overflow ? static_cast<uint32_t>(rounded) : format.overflow);
}

constexpr uint16_t EncodeF16(double value) {
  return static_cast<uint16_t>(EncodeFloat(value, kFormatF16));
}
constexpr uint16_t EncodeBf16(double value) {
  return static_cast<uint16_t>(EncodeFloat(value, kFormatBf16));
}
// Saturates at +-448.
constexpr uint8_t EncodeF8E4M3(double value) {
  return static_cast<uint8_t>(EncodeFloat(value, kFormatF8E4M3));
}
// To nearest, ties to even, within +-127; NaN is 0.
constexpr int8_t EncodeI8(double value) {
  if (value != value) return 0;
  const double clamped = value < -kI8Max ? -kI8Max : value > kI8Max ? kI8Max : value;
  // At 1.5 x 2^52 a double's step is 1, so the sum rounds as wanted.
  return static_cast<int8_t>(clamped + 0x1.8p52 - 0x1.8p52);
}

constexpr float DecodeF16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 127 - 15) << 23) | (mantissa << 13));
}
constexpr float DecodeBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
constexpr float DecodeF8E4M3(uint8_t bits) {
  const uint32_t sign = (bits & 0x80U) << 24;
  const uint32_t exponent = (bits >> 3) & 0xFU;
  const uint32_t mantissa = bits & 0x7U;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9F;
    return sign != 0 ? -magnitude : magnitude;
  }
  if ((bits & 0x7FU) == 0x7FU) return std::bit_cast<float>(sign | 0x7FC00000U);
  return std::bit_cast<float>(sign | ((exponent + 127 - 7) << 23) | (mantissa << 20));
}

}  // namespace inferscale

#endif  // INFERSCALE_KV_ELEMENT_BITS_H_
