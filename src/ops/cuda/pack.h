// Eight neighbouring elements of a tensor, moved in one access and kept packed until they are used:
// converting them when they arrive costs registers that the loads in flight need.
#ifndef INFERSCALE_OPS_CUDA_PACK_H_
#define INFERSCALE_OPS_CUDA_PACK_H_

#include <cstdint>

#include "kv/dtype.h"
#include "kv/element_bits.h"
#include "ops/cuda/portable.h"

namespace inferscale::cuda {

// For lines that are read once, and that are marked as the last to leave the L2 cache. It sounds
// wrong, and copies 3 % faster than any other policy (H200, shuffled pages of 64 KiB): the lines
// that leave in their place are the written ones, in longer runs for the memory.
INFERSCALE_DEVICE uint64_t ReadOncePolicy() {
#ifdef __CUDA_ARCH__
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
#else
  return 0;
#endif
}

INFERSCALE_DEVICE Vec16 LoadOnce(const Vec16* from, [[maybe_unused]] uint64_t policy) {
#ifdef __CUDA_ARCH__
  Vec16 out;
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(out.word[0]), "=r"(out.word[1]), "=r"(out.word[2]), "=r"(out.word[3])
               : "l"(from), "l"(policy));
  return out;
#else
  return *from;
#endif
}

INFERSCALE_DEVICE Vec8 LoadOnce(const Vec8* from, [[maybe_unused]] uint64_t policy) {
#ifdef __CUDA_ARCH__
  Vec8 out;
  asm volatile("ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
               : "=r"(out.word[0]), "=r"(out.word[1])
               : "l"(from), "l"(policy));
  return out;
#else
  return *from;
#endif
}

// Eight floats of a table that many threads read; 16-byte aligned.
INFERSCALE_DEVICE void LoadTable8(const float* from, float (&out)[8]) {
  const Float4 low = LoadConstant(reinterpret_cast<const Float4*>(from));
  const Float4 high = LoadConstant(reinterpret_cast<const Float4*>(from + 4));
  out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
  out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
}

// Pair(i) is elements 2i and 2i + 1. SetPair rounds to nearest, ties to even; the two pairs of a
// word of bytes must be set in rising order.
template <Dtype kDtype>
struct Pack8 {
  using Vec = std::conditional_t<DtypeSize(kDtype) == 2, Vec16, Vec8>;
  Vec bits;

  INFERSCALE_DEVICE void Load(const std::byte* from, uint64_t policy) {
    bits = LoadOnce(reinterpret_cast<const Vec*>(from), policy);
  }
  INFERSCALE_DEVICE void Store(std::byte* to) const {
#ifdef __CUDA_ARCH__
    *reinterpret_cast<NativeOf<Vec>*>(to) = ToNative(bits);
#else
    *reinterpret_cast<Vec*>(to) = bits;
#endif
  }

  INFERSCALE_DEVICE Float2 Pair(int i) const {
    if constexpr (kDtype == Dtype::kBF16) {
      return Bf16PairToFloat(bits.word[i]);
    } else if constexpr (kDtype == Dtype::kF16) {
      return F16PairToFloat(bits.word[i]);
    } else {
      const uint32_t two = bits.word[i / 2] >> (i % 2 * 16);
      if constexpr (kDtype == Dtype::kF8E4M3) return F8PairToFloat(static_cast<uint16_t>(two));
      return {static_cast<float>(static_cast<int8_t>(two)),
              static_cast<float>(static_cast<int8_t>(two >> 8))};
    }
  }

  INFERSCALE_DEVICE void SetPair(int i, Float2 f) {
    if constexpr (kDtype == Dtype::kBF16) {
      bits.word[i] = FloatToBf16Pair(f.x, f.y);
    } else if constexpr (kDtype == Dtype::kF16) {
      bits.word[i] = FloatToF16Pair(f.x, f.y);
    } else {
      uint32_t two = 0;
      if constexpr (kDtype == Dtype::kF8E4M3) {
        two = FloatToF8Pair(f.x, f.y);
      } else {
        two = FloatToI8(f.x) | FloatToI8(f.y) << 8;
      }
      bits.word[i / 2] = i % 2 == 0 ? two : bits.word[i / 2] | two << 16;
    }
  }

 private:
  // Within +-127; NaN is 0.
  INFERSCALE_DEVICE static uint32_t FloatToI8(float value) {
#ifdef __CUDA_ARCH__
    const float clamped = value == value ? fminf(fmaxf(value, -127.0F), 127.0F) : 0.0F;
    return static_cast<uint32_t>(__float2int_rn(clamped)) & 0xFFU;
#else
    return static_cast<uint8_t>(EncodeI8(value));
#endif
  }
};

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_CUDA_PACK_H_
