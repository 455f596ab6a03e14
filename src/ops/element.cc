#include "ops/element.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace inferscale {

namespace {

// An IEEE 754 binary format: sign, exponent, mantissa, from the highest bit down.
struct Format {
  int exponent_bits;
  int mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t exponent_mask() const { return (1U << exponent_bits) - 1; }
  uint32_t mantissa_mask() const { return (1U << mantissa_bits) - 1; }
};

Format FormatOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return {8, 23};
    case Dtype::kF16:
      return {5, 10};
    case Dtype::kBF16:
      return {8, 7};
  }
  return {};
}

double Decode(uint32_t bits, const Format& format) {
  const uint32_t mantissa = bits & format.mantissa_mask();
  const uint32_t exponent = (bits >> format.mantissa_bits) & format.exponent_mask();
  const bool negative = (bits >> (format.mantissa_bits + format.exponent_bits)) != 0;
  double value = 0;
  if (exponent == format.exponent_mask()) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - format.bias() - format.mantissa_bits);
  } else {
    value = std::ldexp(mantissa + format.mantissa_mask() + 1,
                       static_cast<int>(exponent) - format.bias() - format.mantissa_bits);
  }
  return std::copysign(value, negative ? -1.0 : 1.0);
}

uint32_t Encode(double value, const Format& format) {
  const uint32_t sign =
      std::signbit(value) ? 1U << (format.mantissa_bits + format.exponent_bits) : 0;
  const uint32_t infinity = format.exponent_mask() << format.mantissa_bits;
  if (std::isnan(value)) return sign | infinity | (1U << (format.mantissa_bits - 1));
  if (std::isinf(value)) return sign | infinity;
  // The value in units of its last mantissa bit, rounded; subnormals share the smallest exponent.
  const int smallest = 1 - format.bias();
  const int exponent = value == 0 ? smallest : std::max(std::ilogb(value), smallest);
  const double units = std::nearbyint(std::ldexp(std::abs(value), format.mantissa_bits - exponent));
  // A carry out of the mantissa lands in the exponent, which is just what rounding up means.
  const auto bits =
      static_cast<int64_t>(units) + ((int64_t{exponent} - smallest) << format.mantissa_bits);
  return sign | static_cast<uint32_t>(std::min<int64_t>(bits, infinity));
}

}  // namespace

double ReadElement(const std::byte* data, Dtype dtype, size_t index) {
  uint32_t bits = 0;
  std::memcpy(&bits, data + index * DtypeSize(dtype), DtypeSize(dtype));
  return Decode(bits, FormatOf(dtype));
}

void WriteElement(std::byte* data, Dtype dtype, size_t index, double value) {
  const uint32_t bits = Encode(value, FormatOf(dtype));
  std::memcpy(data + index * DtypeSize(dtype), &bits, DtypeSize(dtype));
}

}  // namespace inferscale
