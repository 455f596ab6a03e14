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

// An error that was returned is not also left behind: the next look at the runtime's last error,
// ours or another library's in this process, would take it for its own.
int Returned(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error;
}

const char* ErrorString(int code) {
  if (code == kNoInstance) return "not compiled for these dtypes, head_dim or rotation";
  return cudaGetErrorString(static_cast<cudaError_t>(code));
}

int DeviceInfo(int device, PluginDeviceInfo* info) {
  cudaDeviceProp properties;
  if (const int error = Returned(cudaGetDeviceProperties(&properties, device))) return error;
  std::snprintf(info->name, sizeof(info->name), "%s", properties.name);
  info->memory_bytes = properties.totalGlobalMem;
  info->multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
  info->l2_bytes = static_cast<uint32_t>(properties.l2CacheSize);
  info->major = static_cast<uint32_t>(properties.major);
  info->minor = static_cast<uint32_t>(properties.minor);
  return 0;
}

int CopyAsync(void* to, const void* from, uint64_t bytes, int kind, void* stream) {
  return Returned(
      cudaMemcpyAsync(to, from, bytes, static_cast<cudaMemcpyKind>(kind), StreamOf(stream)));
}

int StreamCreate(void** out) {
  cudaStream_t stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  *out = stream;
  return Returned(error);
}

int EventCreate(void** out) {
  cudaEvent_t event = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  *out = event;
  return Returned(error);
}

int EventQuery(void* event, int* done) {
  const cudaError_t error = cudaEventQuery(EventOf(event));
  *done = error == cudaSuccess ? 1 : 0;
  return error == cudaErrorNotReady ? Returned(error), 0 : Returned(error);
}

int LaunchTransfer(const PluginTransfer& transfer, TransferKernel kernel, void* stream) {
  if (kernel == nullptr) return kNoInstance;
  return ForEachLaunch(transfer, [&](const TransferParams& params, uint32_t tiles) -> int {
    const TransferGrid grid = GridOf(params, tiles);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid.x, grid.y);
    config.blockDim = dim3(kTransferThreads);
    config.stream = StreamOf(stream);
    return Returned(cudaLaunchKernelEx(&config, kernel, params));
  });
}

constexpr Plugin kPlugin = {
    .abi = kPluginAbi,
    .build = INFERSCALE_CUDA_BUILD,
    .error_string = ErrorString,
    .device_count = [](int* count) -> int { return Returned(cudaGetDeviceCount(count)); },
    .device_info = DeviceInfo,
    .set_device = [](int device) -> int { return Returned(cudaSetDevice(device)); },
    .alloc = [](uint64_t bytes, void** out) -> int { return Returned(cudaMalloc(out, bytes)); },
    .free = [](void* memory) -> int { return Returned(cudaFree(memory)); },
    .alloc_pinned = [](uint64_t bytes, void** out) -> int {
      return Returned(cudaHostAlloc(out, bytes, cudaHostAllocPortable));
    },
    .free_pinned = [](void* memory) -> int { return Returned(cudaFreeHost(memory)); },
    .copy_async = CopyAsync,
    .fill_async = [](void* to, int byte, uint64_t bytes, void* stream) -> int {
      return Returned(cudaMemsetAsync(to, byte, bytes, StreamOf(stream)));
    },
    .stream_create = StreamCreate,
    .stream_destroy = [](void* stream) -> int {
      return Returned(cudaStreamDestroy(StreamOf(stream)));
    },
    .stream_synchronize = [](void* stream) -> int {
      return Returned(cudaStreamSynchronize(StreamOf(stream)));
    },
    .event_create = EventCreate,
    .event_destroy = [](void* event) -> int { return Returned(cudaEventDestroy(EventOf(event))); },
    .event_record = [](void* event, void* stream) -> int {
      return Returned(cudaEventRecord(EventOf(event), StreamOf(stream)));
    },
    .event_query = EventQuery,
    .stream_wait = [](void* stream, void* event) -> int {
      return Returned(cudaStreamWaitEvent(StreamOf(stream), EventOf(event), 0));
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
