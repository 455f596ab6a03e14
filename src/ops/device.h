// A GPU, reached through the plug-in libinferscale_cuda.so. Without the plug-in, a driver or a
// device Open says why, and everything goes on on the CPU.
//
// Arguments are checked here, before anything is launched. Calls that take a stream return at once;
// what they were given must stay until the stream has passed it. Any thread may call; Bind() makes
// the device the calling thread's, once.
#ifndef INFERSCALE_OPS_DEVICE_H_
#define INFERSCALE_OPS_DEVICE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv/rope.h"
#include "kv/shape.h"
#include "ops/cuda/plugin.h"
#include "ops/inject/inject.h"

namespace inferscale {

using DeviceStream = void*;  // a cudaStream_t; null is the legacy default stream

struct DeviceInfo {
  std::string name;
  uint64_t memory_bytes = 0;
  uint32_t multiprocessors = 0;
  uint32_t l2_bytes = 0;
  uint32_t compute_capability = 0;  // 90 for 9.0
};

// Memory of a device, or host memory that it copies from at full speed. Freed at the end.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(void* data, uint64_t bytes, int (*free)(void*)) : data_(data, free), bytes_(bytes) {}

  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  uint64_t bytes() const { return bytes_; }

 private:
  static int Nothing(void*) { return 0; }
  std::unique_ptr<void, int (*)(void*)> data_{nullptr, Nothing};
  uint64_t bytes_ = 0;
};

// A moment in the work of a stream. When it is recorded again, whoever waits for it already goes on
// waiting for the moment that it was then.
class DeviceEvent {
 public:
  DeviceEvent() = default;
  DeviceEvent(void* event, int (*destroy)(void*)) : event_(event, destroy) {}

  void* get() const { return event_.get(); }

 private:
  static int Nothing(void*) { return 0; }
  std::unique_ptr<void, int (*)(void*)> event_{nullptr, Nothing};
};

// An engine's paged cache on the device, described once. Strides and dtype as in CacheLayout, bases
// are device addresses; K and V have the same number of dims.
struct DeviceCacheSpec {
  std::vector<uint64_t> k_base, v_base;  // one per layer
  CacheStrides k, v;
  uint32_t page_tokens = 0;
  uint32_t pages = 0;  // in the cache: ids from 0 to pages - 1
  uint32_t heads = 0, dim = 0;
  Dtype dtype = Dtype::kBF16;  // or kF16, kF8E4M3
  // Of an fp8 cache, [layer][scale_heads] with scale_heads 1 or `heads`; empty: 1. Element times
  // scale is the number.
  std::vector<float> k_scale, v_scale;
  // Which of a record's layers each layer is, and how many a record has; empty: the same ones. An
  // engine that keeps its layers in groups with page tables of their own has a cache for each.
  std::vector<uint32_t> record_layer;
  uint32_t record_layers = 0;
};

class Device;

// What a cache and its model's rotations are to the kernels, in device memory.
class DeviceCache {
 public:
  const DeviceCacheSpec& spec() const { return spec_; }
  uint32_t positions() const { return positions_; }

 private:
  friend class Device;
  DeviceCacheSpec spec_;
  uint32_t positions_ = 0;
  cuda::PluginCache cache_ = {};
  cuda::PluginRopes ropes_ = {};
  DeviceMemory memory_;
};

// A run of tokens of a record (kv/fact_kv.h) in device memory, aligned to 16 bytes, and where it
// goes: token i of the run is in page pages[(page_token + i) / page_tokens] of the transfer.
using DeviceSpan = cuda::PluginSpan;

struct DeviceTransfer {
  Dtype record_dtype = Dtype::kBF16;
  const float* key_scales = nullptr;  // [record layer][head][dim], device memory, if quantised
  std::span<const DeviceSpan> spans;
  std::span<const int32_t> pages;  // of all requests, one after another
};

// topk.h's contract for many searches at once; everything in device memory, rows aligned to 16
// bytes. Result i of search s is at [s * k + i]: best first, ties by the smaller row, row
// 0xffffffff where there are no more. Rows are f16 or f32, dims a multiple of 8 up to 4,096, k up
// to 128.
using DeviceSearch = cuda::PluginSearch;
struct DeviceTopK {
  std::span<const DeviceSearch> searches;
  uint32_t dims = 0, k = 0;
  Dtype row_dtype = Dtype::kF16;
  uint32_t* out_rows = nullptr;
  float* out_scores = nullptr;
};

class Device {
 public:
  // `plugin` is a path, or empty: $INFERSCALE_CUDA_PLUGIN, beside the running program or library,
  // or where the system's loader looks. kUnsupported, with what is missing.
  static Result<std::shared_ptr<Device>> Open(int ordinal = 0, const std::string& plugin = "");
  static Result<std::shared_ptr<Device>> Open(int ordinal, const cuda::Plugin& plugin);

  const DeviceInfo& info() const { return info_; }
  std::string build() const { return plugin_.build; }
  Status Bind();

  Result<DeviceMemory> Alloc(uint64_t bytes);  // kExhausted
  Result<DeviceMemory> AllocPinned(uint64_t bytes);
  Status Copy(void* to, const void* from, uint64_t bytes, cuda::PluginCopy kind,
              DeviceStream stream);
  Status Fill(void* to, int byte, uint64_t bytes, DeviceStream stream);
  Result<DeviceStream> CreateStream();  // does not wait for the default stream
  Status DestroyStream(DeviceStream stream);
  Status Synchronize(DeviceStream stream);
  Result<DeviceEvent> CreateEvent();
  Status Record(const DeviceEvent& event, DeviceStream stream);  // after all that it was given
  Result<bool> IsDone(const DeviceEvent& event);
  // What `stream` is given from now on runs after `event`. The host does not wait.
  Status Wait(DeviceStream stream, const DeviceEvent& event);
  // `ropes` are evaluated for positions 0 to positions - 1 and uploaded. kUnsupported for what the
  // kernels don't do: then the caller goes without them.
  Result<DeviceCache> Describe(const DeviceCacheSpec& cache, const RopeTables& ropes,
                               uint32_t positions);
  // The same with cos and sin as the engine has them: [positions][rotary_dims / 2 of cos, then of
  // sin] floats, one table for all layers.
  Result<DeviceCache> Describe(const DeviceCacheSpec& cache, RopeKind kind, uint32_t rotary_dims,
                               std::span<const float> table);

  // inject.h's and capture.h's contracts, for all layers and spans at once. kInvalid for a span
  // over its record, its pages or the positions, a page outside of the cache, a misaligned record;
  // kUnsupported for dtypes that are not compiled in. Then nothing was launched.
  Status Inject(const DeviceTransfer& transfer, const DeviceCache& cache, DeviceStream stream);
  Status Capture(const DeviceTransfer& transfer, const DeviceCache& cache, DeviceStream stream);

  // Memory for searches of this size. One stream may use it again and again.
  Result<DeviceMemory> AllocTopKWorkspace(const DeviceTopK& topk);
  // kInvalid for null or misaligned pointers and a workspace that is too small, kUnsupported for
  // sizes and dtypes that the kernels don't do. Then nothing was launched.
  Status TopK(const DeviceTopK& topk, const DeviceMemory& workspace, DeviceStream stream);

 private:
  Device(const cuda::Plugin& plugin, int ordinal) : plugin_(plugin), ordinal_(ordinal) {}
  Status Check(int code, std::string_view what) const;
  Status Move(const DeviceTransfer& transfer, const DeviceCache& cache, DeviceStream stream,
              int (*move)(const cuda::PluginTransfer*, void*), std::string_view what);
  Result<DeviceCache> Upload(const DeviceCacheSpec& cache,
                             std::span<const std::vector<float>> tables,
                             std::span<const uint32_t> rotary_dims, RopeKind kind,
                             std::span<const uint8_t> layer_table, uint32_t positions);

  const cuda::Plugin& plugin_;
  const int ordinal_;
  DeviceInfo info_;
};

}  // namespace inferscale

#endif  // INFERSCALE_OPS_DEVICE_H_
