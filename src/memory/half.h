// IEEE 754 half precision, the form in which vectors are stored: half the bytes of a float, and an
// error below one part in 2,000, far less than the embedder's own.
#ifndef INFERSCALE_MEMORY_HALF_H_
#define INFERSCALE_MEMORY_HALF_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace inferscale {

constexpr float kMaxHalf = 65504.0F;

// `value` must be finite and within +-kMaxHalf. Rounds to nearest, ties to even.
inline uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude < 0x38800000U) {
    // Subnormal in half: adding 0.5 leaves the rounded value in the low bits of the sum.
    const float sum = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3F000000U));
  }
  const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = (half & 0x8000U) << 16;
  const uint32_t magnitude = half & 0x7FFFU;
  // Multiplying by 2^112 moves the exponent from half's bias to float's; it is exact, for
  // subnormals too.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_HALF_H_
