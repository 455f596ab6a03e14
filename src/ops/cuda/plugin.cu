// The plug-in itself: the CUDA runtime behind plain function pointers.
#include <cuda_runtime.h>

#include <cstdio>

#include "ops/cuda/kernels.h"
#include "ops/cuda/plugin.h"
#include "ops/cuda/transfer_plan.h"
#include "ops/topk/topk_cuda.h"

namespace inferscale::cuda {

namespace {

cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t EventOf(void* event) { return static_cast<cudaEvent_t>(event); }

const char* ErrorString(int code) {
  if (code == kNoInstance) return "not compiled for these dtypes, head_dim or rotation";
  return cudaGetErrorString(static_cast<cudaError_t>(code));
}

int DeviceInfo(int device, PluginDeviceInfo* info) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device)) return error;
  std::snprintf(info->name, sizeof(info->name), "%s", properties.name);
  info->memory_bytes = properties.totalGlobalMem;
  info->multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
  info->l2_bytes = static_cast<uint32_t>(properties.l2CacheSize);
  info->major = static_cast<uint32_t>(properties.major);
  info->minor = static_cast<uint32_t>(properties.minor);
  return 0;
}

int CopyAsync(void* to, const void* from, uint64_t bytes, int kind, void* stream) {
  return cudaMemcpyAsync(to, from, bytes, static_cast<cudaMemcpyKind>(kind), StreamOf(stream));
}

int StreamCreate(void** out) {
  cudaStream_t stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  *out = stream;
  return error;
}

int EventCreate(void** out) {
  cudaEvent_t event = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  *out = event;
  return error;
}

int EventQuery(void* event, int* done) {
  const cudaError_t error = cudaEventQuery(EventOf(event));
  *done = error == cudaSuccess ? 1 : 0;
  return error == cudaErrorNotReady ? cudaSuccess : error;
}

int LaunchTransfer(const PluginTransfer& transfer, TransferKernel kernel, void* stream) {
  if (kernel == nullptr) return kNoInstance;
  return ForEachLaunch(transfer, [&](const TransferParams& params, uint32_t tiles) -> int {
    const TransferGrid grid = GridOf(params, tiles);
    kernel<<<dim3(grid.x, grid.y), kTransferThreads, 0, StreamOf(stream)>>>(params);
    return cudaGetLastError();
  });
}

constexpr Plugin kPlugin = {
    .abi = kPluginAbi,
    .build = INFERSCALE_CUDA_BUILD,
    .error_string = ErrorString,
    .device_count = [](int* count) -> int { return cudaGetDeviceCount(count); },
    .device_info = DeviceInfo,
    .set_device = [](int device) -> int { return cudaSetDevice(device); },
    .alloc = [](uint64_t bytes, void** out) -> int { return cudaMalloc(out, bytes); },
    .free = [](void* memory) -> int { return cudaFree(memory); },
    .alloc_pinned = [](uint64_t bytes, void** out) -> int {
      return cudaHostAlloc(out, bytes, cudaHostAllocPortable);
    },
    .free_pinned = [](void* memory) -> int { return cudaFreeHost(memory); },
    .copy_async = CopyAsync,
    .fill_async = [](void* to, int byte, uint64_t bytes, void* stream) -> int {
      return cudaMemsetAsync(to, byte, bytes, StreamOf(stream));
    },
    .stream_create = StreamCreate,
    .stream_destroy = [](void* stream) -> int { return cudaStreamDestroy(StreamOf(stream)); },
    .stream_synchronize = [](void* stream) -> int {
      return cudaStreamSynchronize(StreamOf(stream));
    },
    .event_create = EventCreate,
    .event_destroy = [](void* event) -> int { return cudaEventDestroy(EventOf(event)); },
    .event_record = [](void* event, void* stream) -> int {
      return cudaEventRecord(EventOf(event), StreamOf(stream));
    },
    .event_query = EventQuery,
    .stream_wait = [](void* stream, void* event) -> int {
      return cudaStreamWaitEvent(StreamOf(stream), EventOf(event), 0);
    },
    .inject = [](const PluginTransfer* transfer, void* stream) -> int {
      return LaunchTransfer(*transfer, FindKernels(*transfer).inject, stream);
    },
    .capture = [](const PluginTransfer* transfer, void* stream) -> int {
      return LaunchTransfer(*transfer, FindKernels(*transfer).capture, stream);
    },
    .topk_workspace = [](const PluginTopK* search) -> uint64_t { return TopKWorkspace(*search); },
    .topk = [](const PluginTopK* search, void* stream) -> int {
      return LaunchTopK(*search, StreamOf(stream));
    },
};

}  // namespace

}  // namespace inferscale::cuda

extern "C" __attribute__((visibility("default"))) const inferscale::cuda::Plugin*
inferscale_cuda_plugin(uint32_t abi) {
  return abi == inferscale::cuda::kPluginAbi ? &inferscale::cuda::kPlugin : nullptr;
}
