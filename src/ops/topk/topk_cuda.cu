#include "ops/topk/topk_cuda.h"
#include "ops/topk/topk_launch.cuh"

namespace inferscale::cuda {

namespace {

using Shape = TopKShape<256, 4, 4>;

}  // namespace

int LaunchTopK(const PluginTopK& topk, CUstream_st* stream) {
  if (!CanTopK(topk)) return kNoInstance;
  TopKDevice device = {};
  if (const cudaError_t error = TopKDeviceOf<Shape>(&device); error != cudaSuccess) return error;
  return static_cast<Dtype>(topk.row_dtype) == Dtype::kF16
             ? LaunchTopKShape<Shape, true>(topk, device, stream)
             : LaunchTopKShape<Shape, false>(topk, device, stream);
}

uint64_t TopKWorkspace(const PluginTopK& topk) {
  TopKDevice device = {};
  if (TopKDeviceOf<Shape>(&device) != cudaSuccess) return 0;
  return TopKWorkspaceBytes(topk, device);
}

}  // namespace inferscale::cuda
