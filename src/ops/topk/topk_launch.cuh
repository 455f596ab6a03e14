// Launching one shape of the topk kernel; for nvcc only.
#ifndef INFERSCALE_OPS_TOPK_TOPK_LAUNCH_CUH_
#define INFERSCALE_OPS_TOPK_TOPK_LAUNCH_CUH_

#include <cuda_runtime.h>

#include "ops/topk/topk_cuda.cuh"

namespace inferscale::cuda {

// Rows: how many a group of 16 lanes reads at once.
template <uint32_t kThreadCount, uint32_t kRowCount, uint32_t kResidentBlocks>
struct TopKShape {
  static constexpr uint32_t kThreads = kThreadCount;
  static constexpr uint32_t kRows = kRowCount;
  static constexpr uint32_t kBlocksPerSm = kResidentBlocks;
};

template <typename Shape, bool kHalf, uint32_t kMaxSearches>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    TopKKernel(const __grid_constant__ TopKParams<kMaxSearches> params) {
  TopKBody<kHalf, Shape::kThreads, Shape::kRows, kMaxSearches>(params).Run();
}

template <typename Shape>
cudaError_t TopKDeviceOf(TopKDevice* device) {
  int current = 0, multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&current);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, current);
  }
  device->resident_blocks = static_cast<uint32_t>(multiprocessors) * Shape::kBlocksPerSm;
  return error;
}

template <typename Shape, bool kHalf>
int LaunchTopKShape(const PluginTopK& topk, const TopKDevice& device, cudaStream_t stream) {
  const size_t shared = TopKSharedBytes(topk.dims, kHalf);
  return ForEachTopKLaunch(topk, [&](std::span<const PluginSearch> searches, uint32_t first) {
    const auto launch = [&]<uint32_t kMaxSearches>() {
      const auto params = MakeTopKParams<kMaxSearches>(topk, searches, first, device);
      cudaLaunchConfig_t config = {};
      config.gridDim = dim3(params.blocks);
      config.blockDim = dim3(Shape::kThreads);
      config.dynamicSmemBytes = shared;
      config.stream = stream;
      // Its own error, not the runtime's last one, which may be somebody else's.
      return static_cast<int>(
          cudaLaunchKernelEx(&config, TopKKernel<Shape, kHalf, kMaxSearches>, params));
    };
    return searches.size() <= kTopKSmallLaunch ? launch.template operator()<kTopKSmallLaunch>()
                                               : launch.template operator()<kTopKLargeLaunch>();
  });
}

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_TOPK_TOPK_LAUNCH_CUH_
