// Vectors of float from and to memory of any element type. Included once per SIMD target, after
// hwy/highway.h, inside nothing (see foreach_target.h in Highway's documentation).
//
// Pointers are bytes and need no alignment: a state blob's rows start anywhere. Rounding is to
// nearest, ties to even. Highway's own conversions are not used for bf16 (it truncates) nor on
// targets without F16C (it truncates and has no infinities).
#if defined(INFERSCALE_OPS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef INFERSCALE_OPS_CONVERT_INL_H_
#undef INFERSCALE_OPS_CONVERT_INL_H_
#else
#define INFERSCALE_OPS_CONVERT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstring>

#include "kv/shape.h"

HWY_BEFORE_NAMESPACE();
namespace inferscale {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// As many elements of 16 bits as D has lanes of float.
template <class D>
using Bits16 = hn::Rebind<uint16_t, D>;
template <class D>
using Bits32 = hn::RebindToUnsigned<D>;

template <class D>
HWY_INLINE hn::Vec<Bits16<D>> Load16(D /*d*/, const std::byte* from) {
  const Bits16<D> d16;
  const hn::Repartition<uint8_t, Bits16<D>> d8;
  return hn::BitCast(d16, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(from)));
}

template <class D>
HWY_INLINE void Store16(D /*d*/, hn::Vec<Bits16<D>> bits, std::byte* to) {
  const hn::Repartition<uint8_t, Bits16<D>> d8;
  hn::StoreU(hn::BitCast(d8, bits), d8, reinterpret_cast<uint8_t*>(to));
}

#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
#define INFERSCALE_NATIVE_F16 0
#else
#define INFERSCALE_NATIVE_F16 1
#endif

template <class D>
HWY_INLINE hn::Vec<D> FloatFromF16(D d, hn::Vec<Bits16<D>> half) {
#if INFERSCALE_NATIVE_F16
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
#else
  const Bits32<D> d32;
  const auto bits = hn::PromoteTo(d32, half);
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(d32, 0x7FFFU)));
  // 2^112 moves the exponent's bias from 15 to 127 and makes subnormals normal, without rounding.
  const auto scaled = hn::BitCast(
      d32, hn::Mul(hn::BitCast(d, magnitude), hn::BitCast(d, hn::Set(d32, (112U + 127) << 23))));
  const auto infinite = hn::Gt(magnitude, hn::Set(d32, (0x7C00U << 13) - 1));
  const auto finite_or_not =
      hn::Or(scaled, hn::IfThenElseZero(infinite, hn::Set(d32, 0xFFU << 23)));
  return hn::BitCast(
      d, hn::Or(finite_or_not, hn::ShiftLeft<16>(hn::And(bits, hn::Set(d32, 0x8000U)))));
#endif
}

template <class D>
HWY_INLINE hn::Vec<Bits16<D>> F16FromFloat(D d, hn::Vec<D> value) {
  const Bits16<D> d16;
#if INFERSCALE_NATIVE_F16
  return hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
#else
  const Bits32<D> d32;
  const auto bits = hn::BitCast(d32, value);
  const auto sign = hn::And(bits, hn::Set(d32, 0x80000000U));
  const auto magnitude = hn::Xor(bits, sign);
  // Normal: adds half a unit less one, and one more if the last kept bit is odd.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d32, 1U));
  const auto normal =
      hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, odd), hn::Set(d32, 0xFFFU - (112U << 23))));
  // Subnormal: adding 0.5 lets the float unit round at f16's smallest step, 2^-24.
  const auto half = hn::Set(d, 0.5F);
  const auto subnormal =
      hn::Sub(hn::BitCast(d32, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(d32, half));
  const auto is_small = hn::Lt(magnitude, hn::Set(d32, (127U - 14) << 23));
  const auto is_large = hn::Gt(magnitude, hn::Set(d32, ((127U + 16) << 23) - 1));
  const auto is_nan = hn::Gt(magnitude, hn::Set(d32, 0xFFU << 23));
  auto result = hn::IfThenElse(is_small, subnormal, normal);
  result = hn::IfThenElse(is_large, hn::Set(d32, 0x7C00U), result);
  result = hn::IfThenElse(is_nan, hn::Set(d32, 0x7E00U), result);
  return hn::TruncateTo(d16, hn::Or(result, hn::ShiftRight<16>(sign)));
#endif
}

template <class D>
HWY_INLINE hn::Vec<Bits16<D>> Bf16FromFloat(D /*d*/, hn::Vec<D> value) {
  const Bits32<D> d32;
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1U));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFFU)));
  // Rounding could carry a NaN into infinity or beyond the sign.
  const auto nan = hn::Or(bits, hn::Set(d32, 1U << 22));
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7FFFFFFFU));
  const auto is_nan = hn::Gt(magnitude, hn::Set(d32, 0xFFU << 23));
  return hn::TruncateTo(Bits16<D>(), hn::ShiftRight<16>(hn::IfThenElse(is_nan, nan, rounded)));
}

// As many elements of 8 bits as D has lanes of float.
template <class D>
using Bits8 = hn::Rebind<uint8_t, D>;

template <class D>
HWY_INLINE hn::Vec<D> FloatFromF8(D d, hn::Vec<Bits8<D>> f8) {
  const Bits32<D> d32;
  const auto bits = hn::PromoteTo(d32, f8);
  const auto magnitude = hn::ShiftLeft<20>(hn::And(bits, hn::Set(d32, 0x7FU)));
  // Moves the exponent's bias from 7 to 127. A subnormal m 2^-9 becomes (8 + m) 2^-9 first, because
  // processors are slow with subnormal floats.
  const auto normal = hn::Add(magnitude, hn::Set(d32, 120U << 23));
  const auto shifted = hn::BitCast(d, hn::Add(normal, hn::Set(d32, 1U << 23)));
  const auto subnormal = hn::BitCast(d32, hn::Sub(shifted, hn::Set(d, 0x1p-6F)));
  const auto is_small = hn::Lt(magnitude, hn::Set(d32, 1U << 23));
  const auto is_nan = hn::Eq(magnitude, hn::Set(d32, 0x7FU << 20));
  const auto finite = hn::IfThenElse(is_small, subnormal, normal);
  const auto sign = hn::ShiftLeft<24>(hn::And(bits, hn::Set(d32, 0x80U)));
  return hn::BitCast(d, hn::Or(hn::IfThenElse(is_nan, hn::Set(d32, 0x7FC00000U), finite), sign));
}

template <class D>
HWY_INLINE hn::Vec<Bits8<D>> F8FromFloat(D d, hn::Vec<D> value) {
  const Bits32<D> d32;
  const auto bits = hn::BitCast(d32, value);
  const auto sign = hn::And(bits, hn::Set(d32, 0x80000000U));
  const auto magnitude = hn::Xor(bits, sign);
  // As in F16FromFloat; adding 2^14 rounds at the smallest step, 2^-9.
  const auto odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(d32, 1U));
  const auto normal =
      hn::ShiftRight<20>(hn::Add(hn::Add(magnitude, odd), hn::Set(d32, 0x7FFFFU - (120U << 23))));
  const auto anchor = hn::Set(d, 0x1p14F);
  const auto subnormal = hn::Sub(hn::BitCast(d32, hn::Add(hn::BitCast(d, magnitude), anchor)),
                                 hn::BitCast(d32, anchor));
  const auto is_small = hn::Lt(magnitude, hn::Set(d32, (127U - 6) << 23));
  const auto is_nan = hn::Gt(magnitude, hn::Set(d32, 0xFFU << 23));
  const auto finite = hn::Min(hn::IfThenElse(is_small, subnormal, normal), hn::Set(d32, 0x7EU));
  const auto result = hn::IfThenElse(is_nan, hn::Set(d32, 0x7FU), finite);
  return hn::TruncateTo(Bits8<D>(), hn::Or(result, hn::ShiftRight<24>(sign)));
}

template <class D>
HWY_INLINE hn::Vec<hn::Rebind<int8_t, D>> I8FromFloat(D d, hn::Vec<D> value) {
  const auto number = hn::IfThenElseZero(hn::Eq(value, value), value);
  const auto clamped = hn::Min(hn::Max(number, hn::Set(d, -127.0F)), hn::Set(d, 127.0F));
  return hn::DemoteTo(hn::Rebind<int8_t, D>(), hn::NearestInt(clamped));
}

template <Dtype kType, class D>
HWY_INLINE hn::Vec<D> LoadFloat(D d, const std::byte* from) {
  if constexpr (kType == Dtype::kF16) {
    return FloatFromF16(d, Load16(d, from));
  } else if constexpr (kType == Dtype::kBF16) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(Bits32<D>(), Load16(d, from))));
  } else if constexpr (kType == Dtype::kI8) {
    const auto i8 = hn::LoadU(hn::Rebind<int8_t, D>(), reinterpret_cast<const int8_t*>(from));
    return hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<D>(), i8));
  } else if constexpr (kType == Dtype::kF8E4M3) {
    return FloatFromF8(d, hn::LoadU(Bits8<D>(), reinterpret_cast<const uint8_t*>(from)));
  } else {
    const hn::Repartition<uint8_t, D> d8;
    return hn::BitCast(d, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(from)));
  }
}

template <Dtype kType, class D>
HWY_INLINE void StoreFloat(D d, hn::Vec<D> value, std::byte* to) {
  if constexpr (kType == Dtype::kF16) {
    Store16(d, F16FromFloat(d, value), to);
  } else if constexpr (kType == Dtype::kBF16) {
    Store16(d, Bf16FromFloat(d, value), to);
  } else if constexpr (kType == Dtype::kI8) {
    hn::StoreU(I8FromFloat(d, value), hn::Rebind<int8_t, D>(), reinterpret_cast<int8_t*>(to));
  } else if constexpr (kType == Dtype::kF8E4M3) {
    hn::StoreU(F8FromFloat(d, value), Bits8<D>(), reinterpret_cast<uint8_t*>(to));
  } else {
    const hn::Repartition<uint8_t, D> d8;
    hn::StoreU(hn::BitCast(d8, value), d8, reinterpret_cast<uint8_t*>(to));
  }
}

// The first `count` elements, fewer than Lanes(d); the other lanes are zero.
template <Dtype kType, class D>
HWY_INLINE hn::Vec<D> LoadFloatN(D d, const std::byte* from, size_t count) {
  alignas(64) std::byte padded[hn::MaxLanes(D()) * sizeof(float)] = {};
  std::memcpy(padded, from, count * DtypeSize(kType));
  return LoadFloat<kType>(d, padded);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloatN(D d, const float* from, size_t count) {
  return LoadFloatN<Dtype::kF32>(d, reinterpret_cast<const std::byte*>(from), count);
}

// The first `count` lanes, fewer than Lanes(d); nothing after them is touched.
template <Dtype kType, class D>
HWY_INLINE void StoreFloatN(D d, hn::Vec<D> value, std::byte* to, size_t count) {
  alignas(64) std::byte padded[hn::MaxLanes(D()) * sizeof(float)];
  StoreFloat<kType>(d, value, padded);
  std::memcpy(to, padded, count * DtypeSize(kType));
}

#undef INFERSCALE_NATIVE_F16

}  // namespace HWY_NAMESPACE
}  // namespace inferscale
HWY_AFTER_NAMESPACE();

#endif  // INFERSCALE_OPS_CONVERT_INL_H_
