#include "emulated_plugin.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

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
int Alloc(uint64_t bytes, void** out) { return posix_memalign(out, 256, bytes); }
int Free(void* memory) {
  std::free(memory);
  return 0;
}

int Run(const PluginTransfer& transfer, TransferKernel kernel, bool threads_meet) {
  if (kernel == nullptr) return kNoInstance;
  return ForEachLaunch(transfer, [&](const TransferParams& params, uint32_t tiles) {
    const Launch launch = {.grid = {params.cache.layers, tiles}, .block = {kTransferThreads}};
    const auto body = [&] { kernel(params); };
    threads_meet ? Emulate(launch, body) : EmulateIndependent(launch, body);
    return 0;
  });
}

int Nothing(void*) { return 0; }

int Make(void** out) {
  static int something;
  *out = &something;
  return 0;
}

constexpr TopKDevice kTopKDevice = {.resident_blocks = 12};

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
    .copy_async =
        [](void* to, const void* from, uint64_t bytes, int, void*) {
          if (bytes > 0) std::memcpy(to, from, bytes);
          return 0;
        },
    .fill_async =
        [](void* to, int byte, uint64_t bytes, void*) {
          std::memset(to, byte, bytes);
          return 0;
        },
    .stream_create = Make,
    .stream_destroy = Nothing,
    .stream_synchronize = Nothing,
    .event_create = Make,
    .event_destroy = Nothing,
    .event_record = [](void*, void*) { return 0; },
    .event_query =
        [](void*, int* done) {
          *done = 1;
          return 0;
        },
    .stream_wait = [](void*, void*) { return 0; },
    .inject = [](const PluginTransfer* transfer,
                 void*) { return Run(*transfer, FindKernels(*transfer).inject, false); },
    .capture =
        [](const PluginTransfer* transfer, void*) {
          return Run(*transfer, FindKernels(*transfer).capture,
                     IsQuantised(static_cast<Dtype>(transfer->record_dtype)));
        },
    .topk_workspace = [](const PluginTopK* topk) { return TopKWorkspaceBytes(*topk, kTopKDevice); },
    .topk = [](const PluginTopK* topk, void*) { return EmulateTopK(*topk, kTopKDevice, 0); },
};

}  // namespace

const cuda::Plugin& EmulatedPlugin() { return kPlugin; }

}  // namespace inferscale
