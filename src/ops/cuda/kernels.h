// The compiled kernels of inject and capture, found by what they are for. `Body` is a kernel under
// nvcc and a body to emulate elsewhere.
#ifndef INFERSCALE_OPS_CUDA_KERNELS_H_
#define INFERSCALE_OPS_CUDA_KERNELS_H_

#include "kv/rope_kind.h"
#include "ops/capture/capture_cuda.cuh"
#include "ops/inject/inject_cuda.cuh"

namespace inferscale::cuda {

#ifdef __CUDACC__
#define INFERSCALE_KERNEL(blocks) __global__ __launch_bounds__(kTransferThreads, blocks)
#define INFERSCALE_PARAMS const __grid_constant__ TransferParams params
using TransferKernel = void (*)(TransferParams);
#else
#define INFERSCALE_KERNEL(blocks)
#define INFERSCALE_PARAMS const TransferParams& params
using TransferKernel = void (*)(const TransferParams&);
#endif

// Null for what is not in instances.def.
struct TransferKernels {
  TransferKernel inject = nullptr;
  TransferKernel capture = nullptr;
};

// Blocks for each multiprocessor: as many as have the registers for all that is in flight.
inline constexpr int kInjectBlocks = 6;
template <Dtype kRecord>
inline constexpr int kCaptureBlocks = IsQuantised(kRecord) ? 4 : 8;

template <Dtype kRecord, Dtype kCache, int kDim, bool kInterleaved>
INFERSCALE_KERNEL(kInjectBlocks)
void InjectKernel(INFERSCALE_PARAMS) {
  InjectBody<kRecord, kCache, kDim, kInterleaved>(params);
}

template <Dtype kCache, Dtype kRecord, int kDim, bool kInterleaved>
INFERSCALE_KERNEL(kCaptureBlocks<kRecord>)
void CaptureKernel(INFERSCALE_PARAMS) {
  CaptureBody<kCache, kRecord, kDim, kInterleaved>(params);
}

template <Dtype kRecord, Dtype kCache, int kDim>
TransferKernels KernelsOf(bool interleaved) {
  if (interleaved) {
    return {InjectKernel<kRecord, kCache, kDim, true>, CaptureKernel<kCache, kRecord, kDim, true>};
  }
  return {InjectKernel<kRecord, kCache, kDim, false>, CaptureKernel<kCache, kRecord, kDim, false>};
}

// All that is compiled for a pair.
template <Dtype kRecord, Dtype kCache>
TransferKernels FindKernelsOfPair(uint32_t dim, bool interleaved) {
#define PAIR(record, cache)
#define DIM(value) \
  if (dim == value) return KernelsOf<kRecord, kCache, value>(interleaved);
#include "ops/cuda/instances.def"
#undef DIM
#undef PAIR
  return {};
}

// Each pair is compiled in a file of its own, which the build makes from instances.def.
#define DIM(value)
#define PAIR(record, cache) \
  extern template TransferKernels FindKernelsOfPair<Dtype::record, Dtype::cache>(uint32_t, bool);
#include "ops/cuda/instances.def"
#undef PAIR
#undef DIM

// The kernels for a transfer.
inline TransferKernels FindKernels(const PluginTransfer& transfer) {
  const auto record = static_cast<Dtype>(transfer.record_dtype);
  const auto cache = static_cast<Dtype>(transfer.cache->dtype);
  const bool interleaved = static_cast<RopeKind>(transfer.ropes->kind) == RopeKind::kInterleaved;
#define DIM(value)
#define PAIR(of_record, of_cache)                                                                  \
  if (record == Dtype::of_record && cache == Dtype::of_cache) {                                    \
    return FindKernelsOfPair<Dtype::of_record, Dtype::of_cache>(transfer.cache->dim, interleaved); \
  }
#include "ops/cuda/instances.def"
#undef PAIR
#undef DIM
  return {};
}

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_CUDA_KERNELS_H_
