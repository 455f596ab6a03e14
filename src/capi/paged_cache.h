// An engine's paged cache, on a device or in host memory: one face for both ways of moving KV.
#ifndef INFERSCALE_CAPI_PAGED_CACHE_H_
#define INFERSCALE_CAPI_PAGED_CACHE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kv/fact_kv.h"
#include "kv/rope.h"
#include "ops/device.h"

namespace inferscale::capi {

struct PagedCacheSpec {
  DeviceCacheSpec layout;  // record_layer and record_layers are given
  // tables[layer_table[l]] is layer l's; they know at least `positions`.
  std::vector<RopeTable> tables;
  std::vector<uint8_t> layer_table;
  uint32_t positions = 0;
};

// Tokens of a record, and where they are in the cache; inferscale_inject_span has the formula.
struct PagedSpan {
  MutableFactKvView record;  // only read by Inject
  uint32_t record_token = 0, tokens = 0;
  int32_t position = 0;
  uint32_t page_token = 0;
};

// Thread-safe.
class PagedCache {
 public:
  // `device` null: in host memory. kInvalid for a spec that contradicts itself, kUnsupported for
  // what can't be moved.
  static Result<std::unique_ptr<PagedCache>> Create(std::shared_ptr<Device> device,
                                                    PagedCacheSpec spec);

  const Device* device() const { return device_.get(); }
  // Of a record, those that this cache holds.
  const std::vector<uint32_t>& record_layers() const { return spec_.layout.record_layer; }

  // kInvalid for a record of another shape, a span over its record, its pages or the positions, or
  // a page outside of the cache; then nothing was written.
  Status Inject(std::span<const PagedSpan> spans, std::span<const int32_t> pages,
                DeviceStream stream) const;
  Status Capture(std::span<const PagedSpan> spans, std::span<const int32_t> pages,
                 DeviceStream stream) const;

 private:
  // Layers that follow each other in the cache and in records.
  struct LayerRun {
    uint32_t cache_layer = 0, record_layer = 0, layers = 0;
  };

  PagedCache(std::shared_ptr<Device> device, PagedCacheSpec spec);
  Status CheckRecords(std::span<const PagedSpan> spans) const;
  Result<std::vector<std::vector<int64_t>>> Slots(std::span<const PagedSpan> spans,
                                                  std::span<const int32_t> pages) const;
  template <typename Span, typename HostMove, typename DeviceMove>
  Status Move(std::span<const PagedSpan> spans, std::span<const int32_t> pages, DeviceStream stream,
              HostMove on_host, DeviceMove on_device) const;
  template <typename Span, typename HostMove>
  Status MoveOnHost(std::span<const PagedSpan> spans, std::span<const int32_t> pages,
                    HostMove move) const;

  const std::shared_ptr<Device> device_;
  PagedCacheSpec spec_;
  DeviceCache described_;  // on a device
  std::vector<LayerRun> runs_;
  std::vector<std::byte*> k_base_, v_base_;
};

}  // namespace inferscale::capi

#endif  // INFERSCALE_CAPI_PAGED_CACHE_H_
