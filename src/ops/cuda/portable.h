// What kernel bodies are written with. A body is a device function in a .cuh file that compiles
// under nvcc, where a .cu wraps it into a kernel, and as plain C++, where ops/cuda/emulate.h runs
// it; so nothing here needs the toolkit when the compiler is another one.
//
//   threadIdx, blockIdx, blockDim, gridDim      as in CUDA
//   INFERSCALE_DEVICE                           before a function of a body
//   INFERSCALE_UNROLL                           before a loop
//   INFERSCALE_SHARED(Type, name)               a shared variable of the block; not initialised
//   INFERSCALE_DYNAMIC_SHARED(name)             std::byte* to the launch's dynamic shared memory
//
// Functions about warps need all 32 lanes to call them together.
#ifndef INFERSCALE_OPS_CUDA_PORTABLE_H_
#define INFERSCALE_OPS_CUDA_PORTABLE_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#define INFERSCALE_DEVICE __device__ __forceinline__
#define INFERSCALE_UNROLL _Pragma("unroll")
#define INFERSCALE_SHARED(Type, name) __shared__ std::type_identity_t<Type> name
#define INFERSCALE_DYNAMIC_SHARED(name)                \
  extern __shared__ uint4 inferscale_dynamic_shared[]; \
  std::byte* const name = reinterpret_cast<std::byte*>(inferscale_dynamic_shared)

#else

#include <bit>
#include <cmath>

#include "kv/element_bits.h"
#include "ops/cuda/emulate.h"

#define INFERSCALE_DEVICE inline
#define INFERSCALE_UNROLL
#define INFERSCALE_SHARED(Type, name) \
  std::type_identity_t<Type>& name = ::inferscale::cuda::SharedVariable<Type>()
#define INFERSCALE_DYNAMIC_SHARED(name) std::byte* const name = ::inferscale::cuda::DynamicShared()

#endif

namespace inferscale::cuda {

inline constexpr uint32_t kWarpLanes = 32;

struct alignas(16) Vec16 {
  uint32_t word[4];
};
struct alignas(8) Vec8 {
  uint32_t word[2];
};
struct alignas(16) Float4 {
  float x, y, z, w;
};
struct alignas(8) Float2 {
  float x, y;
};

#ifdef __CUDACC__

// The vector type that the compiler has load and store instructions for.
template <size_t kBytes>
struct Native;
template <>
struct Native<1> {
  using Type = unsigned char;
};
template <>
struct Native<2> {
  using Type = unsigned short;
};
template <>
struct Native<4> {
  using Type = unsigned;
};
template <>
struct Native<8> {
  using Type = uint2;
};
template <>
struct Native<16> {
  using Type = uint4;
};
template <typename T>
using NativeOf = typename Native<sizeof(T)>::Type;

template <typename T>
__device__ __forceinline__ T FromNative(NativeOf<T> value) {
  union {
    NativeOf<T> native;
    T out;
  };
  native = value;
  return out;
}
template <typename T>
__device__ __forceinline__ NativeOf<T> ToNative(T value) {
  union {
    T in;
    NativeOf<T> native;
  };
  in = value;
  return native;
}

// Memory that is read once: it leaves the caches first.
template <typename T>
__device__ __forceinline__ T LoadStream(const T* from) {
  return FromNative<T>(__ldcs(reinterpret_cast<const NativeOf<T>*>(from)));
}
// Memory that nobody writes while the kernel runs, and that is read again.
template <typename T>
__device__ __forceinline__ T LoadConstant(const T* from) {
  return FromNative<T>(__ldg(reinterpret_cast<const NativeOf<T>*>(from)));
}
// Memory that other blocks of this launch wrote before a fence.
template <typename T>
__device__ __forceinline__ T LoadCoherent(const T* from) {
  return FromNative<T>(__ldcg(reinterpret_cast<const NativeOf<T>*>(from)));
}

__device__ __forceinline__ void SyncThreads() { __syncthreads(); }
__device__ __forceinline__ bool SyncThreadsOr(bool value) { return __syncthreads_or(value) != 0; }
__device__ __forceinline__ uint32_t SyncThreadsCount(bool value) {
  return static_cast<uint32_t>(__syncthreads_count(value));
}
__device__ __forceinline__ void SyncWarp() { __syncwarp(); }
__device__ __forceinline__ void ThreadFence() { __threadfence(); }
template <typename T>
__device__ __forceinline__ T Shuffle(T value, uint32_t lane) {
  return __shfl_sync(0xFFFFFFFFU, value, static_cast<int>(lane));
}
template <typename T>
__device__ __forceinline__ T ShuffleXor(T value, uint32_t mask) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, static_cast<int>(mask));
}
__device__ __forceinline__ uint32_t Ballot(bool value) { return __ballot_sync(0xFFFFFFFFU, value); }
__device__ __forceinline__ uint32_t AtomicAdd(uint32_t* at, uint32_t value) {
  return atomicAdd(at, value);
}
__device__ __forceinline__ uint32_t AtomicInc(uint32_t* at, uint32_t last) {
  return atomicInc(at, last);
}

__device__ __forceinline__ float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ float Multiply(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float Add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float Divide(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ uint32_t BitsOf(float value) { return __float_as_uint(value); }
__device__ __forceinline__ float FloatOf(uint32_t bits) { return __uint_as_float(bits); }

__device__ __forceinline__ float F16ToFloat(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ __forceinline__ float Bf16ToFloat(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
__device__ __forceinline__ uint16_t FloatToF16(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
__device__ __forceinline__ Float2 F16PairToFloat(uint32_t bits) {
  __half2 pair;
  memcpy(&pair, &bits, 4);
  const float2 out = __half22float2(pair);
  return {out.x, out.y};
}
__device__ __forceinline__ Float2 F8PairToFloat(uint16_t bits) {
  const float2 out = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(bits, __NV_E4M3)));
  return {out.x, out.y};
}
__device__ __forceinline__ uint32_t FloatToF16Pair(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, 4);
  return bits;
}
__device__ __forceinline__ uint32_t FloatToBf16Pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, 4);
  return bits;
}
__device__ __forceinline__ uint16_t FloatToF8Pair(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

#else

template <typename T>
T LoadStream(const T* from) {
  return *from;
}
template <typename T>
T LoadConstant(const T* from) {
  return *from;
}
template <typename T>
T LoadCoherent(const T* from) {
  return *from;
}

inline void SyncThreads(Where where = Where::Current()) { MeetBlock("SyncThreads", 0, where); }
inline bool SyncThreadsOr(bool value, Where where = Where::Current()) {
  for (const uint64_t other : MeetBlock("SyncThreadsOr", value, where)) {
    if (other != 0) return true;
  }
  return false;
}
inline uint32_t SyncThreadsCount(bool value, Where where = Where::Current()) {
  uint32_t count = 0;
  for (const uint64_t other : MeetBlock("SyncThreadsCount", value, where)) count += other != 0;
  return count;
}
inline void SyncWarp(Where where = Where::Current()) { MeetWarp("SyncWarp", 0, where); }
inline void ThreadFence() {}
template <typename T>
T Shuffle(T value, uint32_t lane, Where where = Where::Current()) {
  return FromLane<T>(MeetWarp("Shuffle", ToLane(value), where), lane % kWarpLanes);
}
template <typename T>
T ShuffleXor(T value, uint32_t mask, Where where = Where::Current()) {
  return FromLane<T>(MeetWarp("ShuffleXor", ToLane(value), where), LaneId() ^ mask);
}
inline uint32_t Ballot(bool value, Where where = Where::Current()) {
  uint32_t bits = 0, lane = 0;
  for (const uint64_t other : MeetWarp("Ballot", value, where)) {
    bits |= static_cast<uint32_t>(other) << lane++;
  }
  return bits;
}
inline uint32_t AtomicAdd(uint32_t* at, uint32_t value) {
  const uint32_t old = *at;
  *at += value;
  return old;
}
inline uint32_t AtomicInc(uint32_t* at, uint32_t last) {
  const uint32_t old = *at;
  *at = old >= last ? 0 : old + 1;
  return old;
}

inline float Fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float Multiply(float a, float b) { return a * b; }
inline float Add(float a, float b) { return a + b; }
inline float Divide(float a, float b) { return a / b; }
inline uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }
inline float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }

inline float F16ToFloat(uint16_t bits) { return DecodeF16(bits); }
inline float Bf16ToFloat(uint16_t bits) { return DecodeBf16(bits); }
inline uint16_t FloatToF16(float value) { return EncodeF16(value); }
inline Float2 F16PairToFloat(uint32_t bits) {
  return {DecodeF16(static_cast<uint16_t>(bits)), DecodeF16(static_cast<uint16_t>(bits >> 16))};
}
inline Float2 F8PairToFloat(uint16_t bits) {
  return {DecodeF8E4M3(static_cast<uint8_t>(bits)), DecodeF8E4M3(static_cast<uint8_t>(bits >> 8))};
}
inline uint32_t FloatToF16Pair(float low, float high) {
  return EncodeF16(low) | uint32_t{EncodeF16(high)} << 16;
}
inline uint32_t FloatToBf16Pair(float low, float high) {
  return EncodeBf16(low) | uint32_t{EncodeBf16(high)} << 16;
}
inline uint16_t FloatToF8Pair(float low, float high) {
  return static_cast<uint16_t>(EncodeF8E4M3(low) | uint32_t{EncodeF8E4M3(high)} << 8);
}

#endif

// On both sides: a bf16 is a float's upper half.
INFERSCALE_DEVICE Float2 Bf16PairToFloat(uint32_t bits) {
  return {FloatOf(bits << 16), FloatOf(bits & 0xFFFF0000U)};
}

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_CUDA_PORTABLE_H_
