// Caches, and KV on its way into and out of them.
#include <algorithm>

#include "capi/call.h"
#include "capi/handles.h"
#include "inferscale/inferscale.h"

using namespace inferscale;
using namespace inferscale::capi;

namespace {

template <typename T>
Result<std::vector<T>> Copied(const T* data, uint64_t count, std::string_view name) {
  INFERSCALE_ASSIGN(const auto given, Array(data, count, name));
  return std::vector<T>(given.begin(), given.end());
}

// NOLINTNEXTLINE(performance-no-int-to-ptr): that is how the C interface says streams
DeviceStream ToStream(intptr_t stream) { return reinterpret_cast<DeviceStream>(stream); }

// Bounds everything that later code multiplies.
Status CheckCounts(const inferscale_cache_spec& spec) {
  const uint32_t record_layers = spec.record_layers == 0 ? spec.layers : spec.record_layers;
  INFERSCALE_ASSIGN(const Dtype dtype, FromDtype(spec.dtype));
  INFERSCALE_TRY((KvShape{spec.layers, spec.heads, spec.dim, spec.dim, dtype}.Validate()));
  INFERSCALE_TRY((KvShape{record_layers, spec.heads, spec.dim, spec.dim, dtype}.Validate()));
  if (spec.record_layer == nullptr && record_layers != spec.layers) {
    return Fail(Code::kInvalid, "{} layers, {} in a record, and no map between them", spec.layers,
                record_layers);
  }
  constexpr uint32_t kMost = uint32_t{1} << 31;
  if (spec.page_tokens == 0 || spec.page_tokens >= kMost || spec.pages == 0 ||
      spec.pages >= kMost) {
    return Fail(Code::kInvalid, "{} pages of {} tokens", spec.pages, spec.page_tokens);
  }
  if (spec.scale_heads != 0 && (spec.dtype != INFERSCALE_F8_E4M3 ||
                                (spec.scale_heads != 1 && spec.scale_heads != spec.heads))) {
    return Fail(Code::kInvalid, "{} scales a layer for {} heads of {}", spec.scale_heads,
                spec.heads, DtypeName(dtype));
  }
  if (spec.rope_tables > cuda::kMaxRopes) {
    return Fail(Code::kUnsupported, "{} RoPE tables, at most {}", spec.rope_tables,
                cuda::kMaxRopes);
  }
  return {};
}

Result<DeviceCacheSpec> ToLayout(const inferscale_cache_spec& spec) {
  DeviceCacheSpec out;
  const uint64_t scales = uint64_t{spec.layers} * spec.scale_heads;
  INFERSCALE_ASSIGN(out.k_base, Copied(spec.k_base, spec.layers, "spec.k_base"));
  INFERSCALE_ASSIGN(out.v_base, Copied(spec.v_base, spec.layers, "spec.v_base"));
  INFERSCALE_ASSIGN(out.k_scale, Copied(spec.k_scale, scales, "spec.k_scale"));
  INFERSCALE_ASSIGN(out.v_scale, Copied(spec.v_scale, scales, "spec.v_scale"));
  INFERSCALE_ASSIGN(out.dtype, FromDtype(spec.dtype));
  out.k = {spec.k.page, spec.k.token, spec.k.head};
  out.v = {spec.v.page, spec.v.token, spec.v.head};
  out.page_tokens = spec.page_tokens;
  out.pages = spec.pages;
  out.heads = spec.heads;
  out.dim = spec.dim;
  out.record_layers = spec.record_layers == 0 ? spec.layers : spec.record_layers;
  for (uint32_t l = 0; l < spec.layers; ++l) {
    out.record_layer.push_back(spec.record_layer == nullptr ? l : spec.record_layer[l]);
  }
  return out;
}

Result<RopeTable> ToTable(const inferscale_cache_spec& spec, uint32_t r) {
  const uint32_t dims = spec.rotary_dims[r];
  if (dims == 0) return RopeTable(RopeSpec{});
  if (spec.rope_kind != 1 && spec.rope_kind != 2) {
    return Fail(Code::kInvalid, "there is no kind {} of RoPE", spec.rope_kind);
  }
  // Before they multiply to the size of what is read.
  constexpr uint32_t kMostPositions = uint32_t{1} << 28;
  if (dims > spec.dim || spec.positions == 0 || spec.positions > kMostPositions) {
    return Fail(Code::kInvalid, "RoPE of {} dims for heads of {}, at {} positions", dims, spec.dim,
                spec.positions);
  }
  INFERSCALE_TRY(NotNull(spec.rope, "spec.rope"));
  INFERSCALE_ASSIGN(auto values,
                    Copied(spec.rope[r], uint64_t{spec.positions} * dims, "a table of spec.rope"));
  return RopeTable::FromValues(static_cast<RopeKind>(spec.rope_kind), spec.dim, dims,
                               std::move(values));
}

// The tables, and which of them each layer uses.
Status AddRopes(const inferscale_cache_spec& spec, PagedCacheSpec& out) {
  if (spec.rope_tables != 0) INFERSCALE_TRY(NotNull(spec.rotary_dims, "spec.rotary_dims"));
  for (uint32_t r = 0; r < spec.rope_tables; ++r) {
    INFERSCALE_ASSIGN(RopeTable table, ToTable(spec, r));
    out.tables.push_back(std::move(table));
  }
  if (spec.rope_tables == 0) out.tables.emplace_back(RopeSpec{});
  out.positions = out.tables.front().positions();
  for (const RopeTable& table : out.tables) {
    out.positions = std::min(out.positions, table.positions());
  }
  for (uint32_t l = 0; l < spec.layers; ++l) {
    const uint32_t table = spec.layer_rope == nullptr ? 0 : spec.layer_rope[l];
    if (table >= out.tables.size()) {
      return Fail(Code::kInvalid, "layer {} uses RoPE table {} of {}", l, table, spec.rope_tables);
    }
    out.layer_table.push_back(static_cast<uint8_t>(table));
  }
  return {};
}

// `span` is of either kind.
PagedSpan ToPaged(const auto& span, const MutableFactKvView& record) {
  return {.record = record,
          .record_token = span.record_token,
          .tokens = span.tokens,
          .position = span.position,
          .page_token = span.page_token};
}

Status CheckDevice(const PagedCache& cache, const Device* device, std::string_view what) {
  if (cache.device() == device) return {};
  return Fail(Code::kInvalid, "the {} and the cache are not on the same device", what);
}

}  // namespace

int32_t inferscale_cache_open(inferscale_device* device, const inferscale_cache_spec* spec,
                              inferscale_cache** out, inferscale_error* error) {
  if (out != nullptr) *out = nullptr;
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(out, "out"));
    INFERSCALE_ASSIGN(const inferscale_cache_spec given, Sized(spec, "spec"));
    INFERSCALE_TRY(CheckCounts(given));
    PagedCacheSpec wanted;
    INFERSCALE_ASSIGN(wanted.layout, ToLayout(given));
    INFERSCALE_TRY(AddRopes(given, wanted));
    auto handle = std::make_unique<inferscale_cache>();
    INFERSCALE_ASSIGN(
        handle->cache,
        PagedCache::Create(device == nullptr ? nullptr : device->device, std::move(wanted)));
    *out = handle.release();
    return {};
  });
}

void inferscale_cache_close(inferscale_cache* cache) { delete cache; }

int32_t inferscale_inject(inferscale_cache* cache, const inferscale_inject_span* spans,
                          uint32_t count, const int32_t* pages, uint32_t page_count,
                          intptr_t stream, inferscale_error* error) {
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(cache, "cache"));
    INFERSCALE_ASSIGN(const auto given, Array(spans, count, "spans"));
    INFERSCALE_ASSIGN(const auto list, Array(pages, page_count, "pages"));
    std::vector<PagedSpan> moved;
    moved.reserve(given.size());
    for (const inferscale_inject_span& span : given) {
      INFERSCALE_TRY(NotNull(span.lease, "span.lease"));
      INFERSCALE_TRY(CheckDevice(*cache->cache, span.lease->device.get(), "lease"));
      const KvLease& lease = *span.lease->lease;
      if (!lease.IsSettled() || span.record >= lease.size()) {
        return Fail(Code::kInvalid, "record {} of a lease of {}{}", span.record, lease.size(),
                    lease.IsSettled() ? "" : ", which is pending");
      }
      const auto record = lease.Record(span.record);
      if (!record) return Fail(Code::kInvalid, "{}", record.error().message);
      moved.push_back(ToPaged(span, {record->shape, record->tokens,
                                     const_cast<std::byte*>(record->data)}));  // only read
    }
    const KvLease* awaited = nullptr;
    for (const inferscale_inject_span& span : given) {
      if (span.lease->lease.get() == awaited) continue;
      awaited = span.lease->lease.get();
      INFERSCALE_TRY(span.lease->lease->Await(ToStream(stream)));
    }
    return cache->cache->Inject(moved, list, ToStream(stream));
  });
}

int32_t inferscale_capture_open(inferscale_tier* tier, const inferscale_owner* owner,
                                const inferscale_key* key, const int32_t* tokens, uint32_t count,
                                inferscale_capture** out, inferscale_error* error) {
  if (out != nullptr) *out = nullptr;
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(out, "out"));
    INFERSCALE_TRY(NotNull(tier, "tier"));
    INFERSCALE_TRY(NotNull(key, "key"));
    INFERSCALE_ASSIGN(KvOwner whose, FromOwner(owner));
    INFERSCALE_ASSIGN(auto ids, Copied(tokens, count, "tokens"));
    auto handle = std::make_unique<inferscale_capture>();
    INFERSCALE_ASSIGN(handle->capture,
                      tier->tier->Capture({FromKey(*key), std::move(whose.tenant),
                                           whose.fingerprint, whose.shape, std::move(ids)}));
    *out = handle.release();
    return {};
  });
}

int32_t inferscale_capture_spans(inferscale_cache* cache, const inferscale_capture_span* spans,
                                 uint32_t count, const int32_t* pages, uint32_t page_count,
                                 intptr_t stream, inferscale_error* error) {
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(cache, "cache"));
    INFERSCALE_ASSIGN(const auto given, Array(spans, count, "spans"));
    INFERSCALE_ASSIGN(const auto list, Array(pages, page_count, "pages"));
    std::vector<PagedSpan> moved;
    moved.reserve(given.size());
    for (const inferscale_capture_span& span : given) {
      INFERSCALE_TRY(NotNull(span.capture, "span.capture"));
      const KvCapture& capture = *span.capture->capture;
      INFERSCALE_TRY(CheckDevice(*cache->cache, capture.device().get(), "capture"));
      moved.push_back(ToPaged(span, capture.view()));
    }
    // Even if it fails half-way: the stream may have been given some of it.
    for (const inferscale_capture_span& span : given) {
      span.capture->capture->WroteOn(ToStream(stream));
    }
    INFERSCALE_TRY(cache->cache->Capture(moved, list, ToStream(stream)));
    for (const inferscale_capture_span& span : given) {
      for (const uint32_t layer : cache->cache->record_layers()) {
        span.capture->capture->Wrote(layer, span.record_token, span.tokens);
      }
    }
    return {};
  });
}

int32_t inferscale_capture_read(inferscale_capture* capture, intptr_t stream, void* to,
                                uint64_t bytes, inferscale_error* error) {
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(capture, "capture"));
    INFERSCALE_TRY(NotNull(to, "to"));
    INFERSCALE_TRY(capture->capture->CheckWhole());
    const MutableFactKvView view = capture->capture->view();
    if (bytes != view.SizeBytes()) {
      return Fail(Code::kInvalid, "{} bytes for a record of {}", bytes, view.SizeBytes());
    }
    const auto& device = capture->capture->device();
    if (device == nullptr) {
      std::memcpy(to, view.data, bytes);
      return {};
    }
    INFERSCALE_TRY(device->Bind());
    INFERSCALE_TRY(device->Copy(to, view.data, bytes, cuda::kDeviceToHost, ToStream(stream)));
    return device->Synchronize(ToStream(stream));
  });
}

namespace {

// Takes the handle back, on the device that the capture is on.
std::unique_ptr<KvCapture> Take(inferscale_capture* handle) {
  const std::unique_ptr<inferscale_capture> gone(handle);
  if (gone->capture->device() != nullptr) (void)gone->capture->device()->Bind();
  return std::move(gone->capture);
}

}  // namespace

int32_t inferscale_capture_commit(inferscale_capture* capture, intptr_t stream,
                                  inferscale_error* error) {
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(capture, "capture"));
    return KvCapture::Commit(Take(capture), ToStream(stream));
  });
}

void inferscale_capture_close(inferscale_capture* capture, intptr_t stream) {
  (void)Call(nullptr, [&]() -> Status {
    if (capture == nullptr) return {};
    Take(capture)->WroteOn(ToStream(stream));
    return {};
  });
}
