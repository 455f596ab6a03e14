#include "capi/paged_cache.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "ops/capture/capture.h"
#include "ops/inject/inject.h"

namespace inferscale::capi {

namespace {

std::vector<std::byte*> Pointers(const std::vector<uint64_t>& addresses) {
  std::vector<std::byte*> out;
  out.reserve(addresses.size());
  for (const uint64_t address : addresses) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): that is how the C interface says addresses
    out.push_back(reinterpret_cast<std::byte*>(address));
  }
  return out;
}

int HelpfulThreads() {
  return std::clamp<int>(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
}

Status CheckLayers(const DeviceCacheSpec& layout) {
  std::vector<bool> seen(layout.record_layers);
  for (const uint32_t layer : layout.record_layer) {
    if (layer >= layout.record_layers || seen[layer]) {
      return Fail(Code::kInvalid, "layer {} of records with {} is out of range or there twice",
                  layer, layout.record_layers);
    }
    seen[layer] = true;
  }
  return {};
}

// What the device checks by itself.
Status CheckHostLayout(const DeviceCacheSpec& layout) {
  if (IsQuantised(layout.dtype)) {
    return Fail(Code::kUnsupported, "a cache of {} in host memory", DtypeName(layout.dtype));
  }
  const uint64_t size = DtypeSize(layout.dtype);
  for (const auto* bases : {&layout.k_base, &layout.v_base}) {
    for (const uint64_t base : *bases) {
      if (base == 0 || base % size != 0) {
        return Fail(Code::kInvalid, "a layer of the cache at {:#x}", base);
      }
    }
  }
  for (const CacheStrides& strides : {layout.k, layout.v}) {
    for (const int64_t stride : {strides.page, strides.token, strides.head}) {
      if (static_cast<uint64_t>(stride) % size != 0) {
        return Fail(Code::kInvalid, "a stride of {} bytes between elements of {}", stride, size);
      }
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<PagedCache>> PagedCache::Create(std::shared_ptr<Device> device,
                                                       PagedCacheSpec spec) {
  std::unique_ptr<PagedCache> cache(new PagedCache(std::move(device), std::move(spec)));
  const DeviceCacheSpec& layout = cache->spec_.layout;
  INFERSCALE_TRY(CheckLayers(layout));
  if (cache->device_ == nullptr) {
    INFERSCALE_TRY(CheckHostLayout(layout));
    return cache;
  }
  if (layout.dtype == Dtype::kF32) {
    return Fail(Code::kUnsupported, "a cache of {} on a device", DtypeName(layout.dtype));
  }
  INFERSCALE_TRY(cache->device_->Bind());
  const RopeTables ropes = {cache->spec_.tables, cache->spec_.layer_table};
  INFERSCALE_ASSIGN(cache->described_,
                    cache->device_->Describe(layout, ropes, cache->spec_.positions));
  return cache;
}

PagedCache::PagedCache(std::shared_ptr<Device> device, PagedCacheSpec spec)
    : device_(std::move(device)),
      spec_(std::move(spec)),
      k_base_(Pointers(spec_.layout.k_base)),
      v_base_(Pointers(spec_.layout.v_base)) {
  const std::vector<uint32_t>& map = spec_.layout.record_layer;
  for (uint32_t l = 0; l < map.size(); ++l) {
    const bool follows =
        !runs_.empty() && map[l] == runs_.back().record_layer + runs_.back().layers;
    if (follows) {
      ++runs_.back().layers;
    } else {
      runs_.push_back({l, map[l], 1});
    }
  }
}

Status PagedCache::CheckRecords(std::span<const PagedSpan> spans) const {
  const DeviceCacheSpec& layout = spec_.layout;
  for (const PagedSpan& span : spans) {
    const KvShape& shape = span.record.shape;
    const Dtype dtype = spans.front().record.shape.dtype;
    const KvShape wanted = {layout.record_layers, layout.heads, layout.dim, layout.dim, dtype};
    if (shape != wanted) {
      return Fail(Code::kInvalid, "a record is {}, the cache wants {}", shape.ToString(),
                  wanted.ToString());
    }
  }
  return {};
}

// Of every token of every span.
Result<std::vector<std::vector<int64_t>>> PagedCache::Slots(std::span<const PagedSpan> spans,
                                                            std::span<const int32_t> pages) const {
  const uint32_t page_tokens = spec_.layout.page_tokens;
  const uint64_t list_tokens = pages.size() * uint64_t{page_tokens};
  std::vector<std::vector<int64_t>> slots(spans.size());
  for (size_t i = 0; i < spans.size(); ++i) {
    const uint64_t end = uint64_t{spans[i].page_token} + spans[i].tokens;
    if (end > list_tokens) {
      return Fail(Code::kInvalid, "tokens {} to {} of pages for {}", spans[i].page_token, end,
                  list_tokens);
    }
    for (uint64_t t = spans[i].page_token; t < end; ++t) {
      const int32_t page = pages[t / page_tokens];
      if (page < 0 || static_cast<uint32_t>(page) >= spec_.layout.pages) {
        return Fail(Code::kInvalid, "page {} of a cache of {}", page, spec_.layout.pages);
      }
      slots[i].push_back(int64_t{page} * page_tokens + static_cast<int64_t>(t % page_tokens));
    }
  }
  return slots;
}

template <typename Span, typename HostMove>
Status PagedCache::MoveOnHost(std::span<const PagedSpan> spans, std::span<const int32_t> pages,
                              HostMove move) const {
  INFERSCALE_ASSIGN(const auto slots, Slots(spans, pages));
  const DeviceCacheSpec& layout = spec_.layout;
  std::vector<Span> moved(spans.size());
  for (const LayerRun& run : runs_) {
    for (size_t i = 0; i < spans.size(); ++i) {
      const PagedSpan& span = spans[i];
      // The layers of the run are a record by themselves.
      MutableFactKvView part = span.record;
      part.data = span.record.K(run.record_layer);
      part.shape.layers = run.layers;
      moved[i] = {part,
                  {.record_token = span.record_token,
                   .tokens = span.tokens,
                   .position = span.position,
                   .slots = slots[i]}};
    }
    const RopeTables ropes = {spec_.tables,
                              std::span(spec_.layer_table).subspan(run.cache_layer, run.layers)};
    const CacheLayout part = {std::span(k_base_).subspan(run.cache_layer, run.layers),
                              std::span(v_base_).subspan(run.cache_layer, run.layers),
                              layout.k,
                              layout.v,
                              layout.page_tokens,
                              layout.dtype};
    // What can be refused is the same for all runs, so the first tells.
    INFERSCALE_TRY(move(moved, ropes, part, HelpfulThreads()));
  }
  return {};
}

namespace {

std::vector<DeviceSpan> ToDevice(std::span<const PagedSpan> spans) {
  std::vector<DeviceSpan> out;
  out.reserve(spans.size());
  for (const PagedSpan& span : spans) {
    out.push_back({.record = span.record.data,
                   .record_tokens = span.record.tokens,
                   .first = span.record_token,
                   .tokens = span.tokens,
                   .position = span.position,
                   .page_token = span.page_token});
  }
  return out;
}

}  // namespace

template <typename Span, typename HostMove, typename DeviceMove>
Status PagedCache::Move(std::span<const PagedSpan> spans, std::span<const int32_t> pages,
                        DeviceStream stream, HostMove on_host, DeviceMove on_device) const {
  if (spans.empty()) return {};
  INFERSCALE_TRY(CheckRecords(spans));
  if (device_ == nullptr) return MoveOnHost<Span>(spans, pages, on_host);
  const std::vector<DeviceSpan> moved = ToDevice(spans);
  INFERSCALE_TRY(device_->Bind());
  return (*device_.*on_device)(
      {.record_dtype = spans.front().record.shape.dtype, .spans = moved, .pages = pages},
      described_, stream);
}

Status PagedCache::Inject(std::span<const PagedSpan> spans, std::span<const int32_t> pages,
                          DeviceStream stream) const {
  return Move<InjectSpan>(spans, pages, stream, inferscale::Inject, &Device::Inject);
}

Status PagedCache::Capture(std::span<const PagedSpan> spans, std::span<const int32_t> pages,
                           DeviceStream stream) const {
  return Move<CaptureSpan>(spans, pages, stream, inferscale::Capture, &Device::Capture);
}

}  // namespace inferscale::capi
