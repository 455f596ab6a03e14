#include "emulated_plugin.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "emulated_streams.h"
#include "emulated_topk.h"
#include "ops/cuda/emulate.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/transfer_plan.h"

namespace inferscale::cuda {

#define DIM(value)
#define PAIR(record, cache) \
  template TransferKernels FindKernelsOfPair<Dtype::record, Dtype::cache>(uint32_t, bool);
#include "ops/cuda/instances.def"
#undef PAIR
#undef DIM

}  // namespace inferscale::cuda

namespace inferscale {

namespace {

using namespace cuda;

// Aligned as cudaMalloc's, and no larger than asked for, so that AddressSanitizer sees what runs
// over.
int Alloc(uint64_t bytes, void** out) {
  // Not left to AddressSanitizer, which ends the program.
  constexpr uint64_t kDeviceBytes = uint64_t{1} << 36;
  if (bytes > kDeviceBytes || emulated::IsRefused(emulated::Call::kAlloc)) {
    return emulated::kRefused;
  }
  return posix_memalign(out, 256, bytes);
}
int Free(void* memory) {
  std::free(memory);
  return 0;
}

int Run(const PluginTransfer& transfer, TransferKernel kernel, bool threads_meet, void* stream) {
  if (kernel == nullptr) return kNoInstance;
  return ForEachLaunch(transfer, [&](const TransferParams& params, uint32_t tiles) {
    const TransferGrid grid = GridOf(params, tiles);
    return emulated::Enqueue(stream, [params, grid, kernel, threads_meet] {
      const Launch launch = {.grid = {grid.x, grid.y}, .block = {kTransferThreads}};
      const auto body = [&] { kernel(params); };
      threads_meet ? Emulate(launch, body) : EmulateIndependent(launch, body);
    });
  });
}

int Copy(void* to, const void* from, uint64_t bytes, int, void* stream) {
  if (emulated::IsRefused(emulated::Call::kCopy)) return emulated::kRefused;
  if (bytes == 0) return 0;
  return emulated::Enqueue(stream, [=] { std::memcpy(to, from, bytes); });
}

int Fill(void* to, int byte, uint64_t bytes, void* stream) {
  if (emulated::IsRefused(emulated::Call::kCopy)) return emulated::kRefused;
  return emulated::Enqueue(stream, [=] { std::memset(to, byte, bytes); });
}

constexpr TopKDevice kTopKDevice = {.resident_blocks = 12};

int TopK(const PluginTopK* topk, void* stream) {
  if (!CanTopK(*topk)) return kNoInstance;
  const std::vector<PluginSearch> searches(topk->searches, topk->searches + topk->search_count);
  return emulated::Enqueue(stream, [call = *topk, searches]() mutable {
    call.searches = searches.data();
    (void)EmulateTopK(call, kTopKDevice, 0);
  });
}

constexpr Plugin kPlugin = {
    .abi = kPluginAbi,
    .build = "emulated",
    .error_string =
        [](int code) { return code == kNoInstance ? "not compiled in" : "out of memory"; },
    .device_count =
        [](int* count) {
          *count = 1;
          return 0;
        },
    .device_info =
        [](int, PluginDeviceInfo* info) {
          std::snprintf(info->name, sizeof(info->name), "emulated");
          return 0;
        },
    .set_device = [](int) { return 0; },
    .alloc = Alloc,
    .free = Free,
    .alloc_pinned = Alloc,
    .free_pinned = Free,
    .copy_async = Copy,
    .fill_async = Fill,
    .stream_create = emulated::StreamCreate,
    .stream_destroy = emulated::StreamDestroy,
    .stream_synchronize = emulated::StreamSynchronize,
    .event_create = emulated::EventCreate,
    .event_destroy = emulated::EventDestroy,
    .event_record = emulated::EventRecord,
    .event_query = emulated::EventQuery,
    .stream_wait = emulated::StreamWait,
    .inject =
        [](const PluginTransfer* transfer, void* stream) {
          return Run(*transfer, FindKernels(*transfer).inject, false, stream);
        },
    .capture =
        [](const PluginTransfer* transfer, void* stream) {
          return Run(*transfer, FindKernels(*transfer).capture,
                     IsQuantised(static_cast<Dtype>(transfer->record_dtype)), stream);
        },
    .topk_workspace = [](const PluginTopK* topk) { return TopKWorkspaceBytes(*topk, kTopKDevice); },
    .topk = TopK,
};

}  // namespace

const cuda::Plugin& EmulatedPlugin() { return kPlugin; }

}  // namespace inferscale
