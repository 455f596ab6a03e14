#include "ops/device.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "ops/topk/topk_plan.h"

namespace inferscale {

namespace {

constexpr char kPluginFile[] = "libinferscale_cuda.so";

// The folder of the program or library that this code is in.
std::filesystem::path OwnFolder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  return std::filesystem::canonical(info.dli_fname, error).parent_path();
}

// Never closed: kernels and their library live until the process ends.
Result<const cuda::Plugin*> LoadPlugin(const std::string& path) {
  std::vector<std::string> places;
  const char* from_environment = std::getenv("INFERSCALE_CUDA_PLUGIN");
  if (!path.empty()) {
    places = {path};
  } else if (from_environment != nullptr) {
    places = {from_environment};
  } else {
    places = {OwnFolder() / kPluginFile, OwnFolder() / "../lib" / kPluginFile, kPluginFile};
  }
  std::string reason;
  for (const std::string& place : places) {
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      const auto entry =
          reinterpret_cast<cuda::PluginEntry>(dlsym(library, cuda::kPluginEntryName));
      const cuda::Plugin* plugin = entry == nullptr ? nullptr : entry(cuda::kPluginAbi);
      if (plugin != nullptr) return plugin;
      return Fail(Code::kUnsupported, "{} is of another version of InferScale", place);
    }
    const char* error = dlerror();
    reason = error == nullptr ? "" : error;
  }
  return Fail(Code::kUnsupported, "no CUDA plug-in: {}", reason);
}

bool IsAligned(uint64_t value, uint64_t to) { return value % to == 0; }

Status CheckCache(const DeviceCacheSpec& cache) {
  const size_t layers = cache.k_base.size();
  if (layers == 0 || cache.v_base.size() != layers || cache.heads == 0 || cache.page_tokens == 0) {
    return Fail(Code::kInvalid, "a cache of {}/{} layers, {} heads and pages of {} tokens", layers,
                cache.v_base.size(), cache.heads, cache.page_tokens);
  }
  if (layers > 65535) return Fail(Code::kUnsupported, "{} layers", layers);
  if (!cache.record_layer.empty() && cache.record_layer.size() != layers) {
    return Fail(Code::kInvalid, "a cache of {} layers names {} of a record", layers,
                cache.record_layer.size());
  }
  for (const uint32_t layer : cache.record_layer) {
    if (layer >= cache.record_layers) {
      return Fail(Code::kInvalid, "layer {} of a record of {}", layer, cache.record_layers);
    }
  }
  if (cache.dim % 16 != 0 || cache.dim == 0) {
    return Fail(Code::kUnsupported, "heads of {} dims, not a multiple of 16", cache.dim);
  }
  for (const auto* scales : {&cache.k_scale, &cache.v_scale}) {
    if (!scales->empty() && scales->size() != layers && scales->size() != layers * cache.heads) {
      return Fail(Code::kInvalid, "{} scales for {} layers of {} heads", scales->size(), layers,
                  cache.heads);
    }
  }
  if (!cache.k_scale.empty() && !cache.v_scale.empty() &&
      cache.k_scale.size() != cache.v_scale.size()) {
    return Fail(Code::kInvalid, "{} scales of K, {} of V", cache.k_scale.size(),
                cache.v_scale.size());
  }
  // Eight elements move in one access.
  const uint64_t access = 8 * DtypeSize(cache.dtype);
  for (const CacheStrides& strides : {cache.k, cache.v}) {
    for (const int64_t stride : {strides.page, strides.token, strides.head}) {
      if (!IsAligned(static_cast<uint64_t>(stride), access)) {
        return Fail(Code::kUnsupported, "a stride of {} bytes, not a multiple of {}", stride,
                    access);
      }
    }
  }
  for (const auto* bases : {&cache.k_base, &cache.v_base}) {
    for (const uint64_t base : *bases) {
      if (base == 0 || !IsAligned(base, access)) {
        return Fail(Code::kInvalid, "a layer of the cache at {:#x}, which is not aligned to {}",
                    base, access);
      }
    }
  }
  return {};
}

Status CheckSpans(const DeviceTransfer& transfer, const DeviceCache& cache) {
  const DeviceCacheSpec& spec = cache.spec();
  const uint64_t list_tokens = transfer.pages.size() * uint64_t{spec.page_tokens};
  for (const DeviceSpan& span : transfer.spans) {
    if (span.record == nullptr || !IsAligned(reinterpret_cast<uint64_t>(span.record), 16)) {
      return Fail(Code::kInvalid, "a record at {}, which is not aligned to 16 bytes", span.record);
    }
    if (uint64_t{span.first} + span.tokens > span.record_tokens) {
      return Fail(Code::kInvalid, "tokens {} to {} of a record of {}", span.first,
                  uint64_t{span.first} + span.tokens, span.record_tokens);
    }
    if (span.position < 0 || uint64_t(span.position) + span.tokens > cache.positions()) {
      return Fail(Code::kInvalid, "positions {} to {}, RoPE is known up to {}", span.position,
                  int64_t{span.position} + span.tokens, cache.positions());
    }
    if (uint64_t{span.page_token} + span.tokens > list_tokens) {
      return Fail(Code::kInvalid, "tokens {} to {} of pages for {}", span.page_token,
                  uint64_t{span.page_token} + span.tokens, list_tokens);
    }
    if (span.tokens == 0) continue;
    const uint32_t last = (span.page_token + span.tokens - 1) / spec.page_tokens;
    for (uint32_t i = span.page_token / spec.page_tokens; i <= last; ++i) {
      const int32_t page = transfer.pages[i];
      if (page < 0 || static_cast<uint32_t>(page) >= spec.pages) {
        return Fail(Code::kInvalid, "page {} of a cache of {}", page, spec.pages);
      }
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<Device>> Device::Open(int ordinal, const std::string& plugin) {
  INFERSCALE_ASSIGN(const cuda::Plugin* loaded, LoadPlugin(plugin));
  return Open(ordinal, *loaded);
}

Result<std::shared_ptr<Device>> Device::Open(int ordinal, const cuda::Plugin& plugin) {
  std::shared_ptr<Device> device(new Device(plugin, ordinal));
  int count = 0;
  if (const int code = plugin.device_count(&count); code != 0) {
    return Fail(Code::kUnsupported, "no CUDA device: {}", plugin.error_string(code));
  }
  if (ordinal < 0 || ordinal >= count) {
    return Fail(Code::kUnsupported, "CUDA device {} of {}", ordinal, count);
  }
  cuda::PluginDeviceInfo info = {};
  INFERSCALE_TRY(device->Check(plugin.device_info(ordinal, &info), "look at"));
  device->info_ = {info.name, info.memory_bytes, info.multiprocessors, info.l2_bytes,
                   info.major * 10 + info.minor};
  INFERSCALE_TRY(device->Bind());
  return device;
}

Status Device::Check(int code, std::string_view what) const {
  if (code == 0) return {};
  const Code kind = code == cuda::kNoInstance ? Code::kUnsupported : Code::kTransient;
  return Fail(kind, "CUDA device {} can't {}: {}", ordinal_, what, plugin_.error_string(code));
}

Status Device::Bind() { return Check(plugin_.set_device(ordinal_), "be used"); }

Result<DeviceMemory> Device::Alloc(uint64_t bytes) {
  void* data = nullptr;
  if (const int code = plugin_.alloc(std::max<uint64_t>(bytes, 1), &data); code != 0) {
    return Fail(Code::kExhausted, "CUDA device {} has no {} bytes: {}", ordinal_, bytes,
                plugin_.error_string(code));
  }
  return DeviceMemory(data, bytes, plugin_.free);
}

Result<DeviceMemory> Device::AllocPinned(uint64_t bytes) {
  void* data = nullptr;
  if (const int code = plugin_.alloc_pinned(std::max<uint64_t>(bytes, 1), &data); code != 0) {
    return Fail(Code::kExhausted, "no {} bytes of pinned memory: {}", bytes,
                plugin_.error_string(code));
  }
  return DeviceMemory(data, bytes, plugin_.free_pinned);
}

Status Device::Copy(void* to, const void* from, uint64_t bytes, cuda::PluginCopy kind,
                    DeviceStream stream) {
  return Check(plugin_.copy_async(to, from, bytes, kind, stream), "copy");
}

Status Device::Fill(void* to, int byte, uint64_t bytes, DeviceStream stream) {
  return Check(plugin_.fill_async(to, byte, bytes, stream), "fill memory");
}

Result<DeviceStream> Device::CreateStream() {
  DeviceStream stream = nullptr;
  INFERSCALE_TRY(Check(plugin_.stream_create(&stream), "make a stream"));
  return stream;
}

Status Device::DestroyStream(DeviceStream stream) {
  return Check(plugin_.stream_destroy(stream), "end a stream");
}

Status Device::Synchronize(DeviceStream stream) {
  return Check(plugin_.stream_synchronize(stream), "finish its work");
}

Result<DeviceEvent> Device::CreateEvent() {
  void* event = nullptr;
  INFERSCALE_TRY(Check(plugin_.event_create(&event), "make an event"));
  return DeviceEvent(event, plugin_.event_destroy);
}

Status Device::Record(const DeviceEvent& event, DeviceStream stream) {
  return Check(plugin_.event_record(event.get(), stream), "record an event");
}

Result<bool> Device::IsDone(const DeviceEvent& event) {
  int done = 0;
  INFERSCALE_TRY(Check(plugin_.event_query(event.get(), &done), "look at an event"));
  return done != 0;
}

Status Device::Wait(DeviceStream stream, const DeviceEvent& event) {
  return Check(plugin_.stream_wait(stream, event.get()), "wait for an event");
}

Result<DeviceCache> Device::Describe(const DeviceCacheSpec& cache, const RopeTables& ropes,
                                     uint32_t positions) {
  if (ropes.layer_table.size() != cache.k_base.size()) {
    return Fail(Code::kInvalid, "RoPE tables for {} layers, a cache of {}",
                ropes.layer_table.size(), cache.k_base.size());
  }
  RopeKind kind = RopeKind::kNone;
  std::vector<std::vector<float>> tables;
  std::vector<uint32_t> rotary_dims;
  for (const RopeTable& rope : ropes.tables) {
    const RopeKind own = rope.spec().kind;
    if (own != RopeKind::kNone && kind != RopeKind::kNone && own != kind) {
      return Fail(Code::kUnsupported, "layers of two kinds of RoPE");
    }
    if (own != RopeKind::kNone) kind = own;
    const uint32_t pairs = rope.pairs();
    std::vector<float>& table = tables.emplace_back(size_t{positions} * 2 * pairs);
    for (uint32_t p = 0; pairs > 0 && p < positions; ++p) {
      float* row = table.data() + size_t{p} * 2 * pairs;
      rope.Fill(static_cast<int32_t>(p), {row, pairs}, {row + pairs, pairs});
    }
    rotary_dims.push_back(2 * pairs);
  }
  return Upload(cache, tables, rotary_dims, kind, ropes.layer_table, positions);
}

Result<DeviceCache> Device::Describe(const DeviceCacheSpec& cache, RopeKind kind,
                                     uint32_t rotary_dims, std::span<const float> table) {
  if (kind == RopeKind::kNone || rotary_dims == 0 || table.size() % rotary_dims != 0) {
    return Fail(Code::kInvalid, "a RoPE table of {} floats for {} dims", table.size(), rotary_dims);
  }
  const std::vector<float> copy(table.begin(), table.end());
  const std::vector<uint8_t> layers(cache.k_base.size(), 0);
  return Upload(cache, {&copy, 1}, {&rotary_dims, 1}, kind, layers,
                static_cast<uint32_t>(table.size() / rotary_dims));
}

Result<DeviceCache> Device::Upload(const DeviceCacheSpec& cache,
                                   std::span<const std::vector<float>> tables,
                                   std::span<const uint32_t> rotary_dims, RopeKind kind,
                                   std::span<const uint8_t> layer_table, uint32_t positions) {
  INFERSCALE_TRY(CheckCache(cache));
  if (tables.size() > cuda::kMaxRopes) {
    return Fail(Code::kUnsupported, "{} RoPE tables, at most {}", tables.size(), cuda::kMaxRopes);
  }
  for (const uint32_t dims : rotary_dims) {
    if (dims % 16 != 0 || dims > cache.dim) {
      return Fail(Code::kUnsupported, "RoPE of {} of {} dims", dims, cache.dim);
    }
  }
  for (const uint8_t table : layer_table) {
    if (table >= tables.size()) {
      return Fail(Code::kInvalid, "RoPE table {} of {}", table, tables.size());
    }
  }

  // One allocation and one copy for all of it.
  std::vector<std::byte> image;
  const auto append = [&](const void* data, size_t bytes) {
    const size_t at = (image.size() + 255) / 256 * 256;
    image.resize(at + bytes);
    if (bytes > 0) std::memcpy(image.data() + at, data, bytes);
    return at;
  };
  const size_t k_base = append(cache.k_base.data(), cache.k_base.size() * sizeof(uint64_t));
  const size_t v_base = append(cache.v_base.data(), cache.v_base.size() * sizeof(uint64_t));
  const size_t k_scale = append(cache.k_scale.data(), cache.k_scale.size() * sizeof(float));
  const size_t v_scale = append(cache.v_scale.data(), cache.v_scale.size() * sizeof(float));
  const size_t layers = append(layer_table.data(), layer_table.size());
  const size_t record_layer =
      append(cache.record_layer.data(), cache.record_layer.size() * sizeof(uint32_t));
  std::vector<size_t> table_at;
  for (const auto& table : tables) {
    table_at.push_back(append(table.data(), table.size() * sizeof(float)));
  }
  DeviceCache out;
  INFERSCALE_TRY(Bind());
  INFERSCALE_ASSIGN(out.memory_, Alloc(image.size()));
  INFERSCALE_TRY(
      Copy(out.memory_.data(), image.data(), image.size(), cuda::kHostToDevice, nullptr));
  INFERSCALE_TRY(Synchronize(nullptr));

  // Else every lane would look its layer up.
  bool is_whole_record =
      cache.record_layer.empty() || cache.record_layers == cache.record_layer.size();
  for (size_t l = 0; l < cache.record_layer.size(); ++l) {
    is_whole_record = is_whole_record && cache.record_layer[l] == l;
  }
  const std::byte* base = out.memory_.data();
  out.spec_ = cache;
  out.positions_ = positions;
  const size_t scales = std::max(cache.k_scale.size(), cache.v_scale.size());
  out.cache_ = {
      .k_base = reinterpret_cast<const uint64_t*>(base + k_base),
      .v_base = reinterpret_cast<const uint64_t*>(base + v_base),
      .k_page = cache.k.page,
      .k_token = cache.k.token,
      .k_head = cache.k.head,
      .v_page = cache.v.page,
      .v_token = cache.v.token,
      .v_head = cache.v.head,
      .page_tokens = cache.page_tokens,
      .layers = static_cast<uint32_t>(cache.k_base.size()),
      .heads = cache.heads,
      .dim = cache.dim,
      .dtype = static_cast<uint8_t>(cache.dtype),
      .k_scale = cache.k_scale.empty() ? nullptr : reinterpret_cast<const float*>(base + k_scale),
      .v_scale = cache.v_scale.empty() ? nullptr : reinterpret_cast<const float*>(base + v_scale),
      .scale_heads = static_cast<uint32_t>(scales / cache.k_base.size()),
      .record_layer =
          is_whole_record ? nullptr : reinterpret_cast<const uint32_t*>(base + record_layer),
      .record_layers =
          is_whole_record ? static_cast<uint32_t>(cache.k_base.size()) : cache.record_layers,
  };
  for (size_t i = 0; i < tables.size(); ++i) {
    out.ropes_.table[i] = reinterpret_cast<const float*>(base + table_at[i]);
    out.ropes_.rotary_dims[i] = rotary_dims[i];
  }
  out.ropes_.layer_table = reinterpret_cast<const uint8_t*>(base + layers);
  out.ropes_.tables = static_cast<uint8_t>(tables.size());
  out.ropes_.kind = static_cast<uint8_t>(kind == RopeKind::kNone ? RopeKind::kNeox : kind);
  return out;
}

Status Device::Move(const DeviceTransfer& transfer, const DeviceCache& cache, DeviceStream stream,
                    int (*move)(const cuda::PluginTransfer*, void*), std::string_view what) {
  INFERSCALE_TRY(CheckSpans(transfer, cache));
  if (IsQuantised(transfer.record_dtype) && transfer.key_scales == nullptr) {
    return Fail(Code::kInvalid, "{} records without key scales", DtypeName(transfer.record_dtype));
  }
  const cuda::PluginTransfer plain = {
      .cache = &cache.cache_,
      .ropes = &cache.ropes_,
      .key_scales = transfer.key_scales,
      .spans = transfer.spans.data(),
      .span_count = static_cast<uint32_t>(transfer.spans.size()),
      .pages = transfer.pages.data(),
      .page_count = static_cast<uint32_t>(transfer.pages.size()),
      .record_dtype = static_cast<uint8_t>(transfer.record_dtype),
  };
  return Check(move(&plain, stream), what);
}

Status Device::Inject(const DeviceTransfer& transfer, const DeviceCache& cache,
                      DeviceStream stream) {
  return Move(transfer, cache, stream, plugin_.inject, "inject");
}

Status Device::Capture(const DeviceTransfer& transfer, const DeviceCache& cache,
                       DeviceStream stream) {
  return Move(transfer, cache, stream, plugin_.capture, "capture");
}

namespace {

cuda::PluginTopK PlainTopK(const DeviceTopK& topk, void* workspace) {
  return {.searches = topk.searches.data(),
          .search_count = static_cast<uint32_t>(topk.searches.size()),
          .dims = topk.dims,
          .k = topk.k,
          .row_dtype = static_cast<uint8_t>(topk.row_dtype),
          .out_rows = topk.out_rows,
          .out_scores = topk.out_scores,
          .workspace = workspace};
}

Status CheckTopK(const DeviceTopK& topk) {
  if (!cuda::CanTopK(PlainTopK(topk, nullptr))) {
    return Fail(Code::kUnsupported, "a search for {} among {} rows of {} dims", topk.k,
                DtypeName(topk.row_dtype), topk.dims);
  }
  for (const DeviceSearch& search : topk.searches) {
    if (search.query == nullptr || (search.count > 0 && search.rows == nullptr)) {
      return Fail(Code::kInvalid, "a search without rows or without a query");
    }
    if (!IsAligned(reinterpret_cast<uint64_t>(search.rows), 16) ||
        !IsAligned(reinterpret_cast<uint64_t>(search.query), alignof(float)) ||
        !IsAligned(reinterpret_cast<uint64_t>(search.allowed), alignof(uint64_t))) {
      return Fail(Code::kInvalid, "rows at {}, query at {}, bitmap at {}: not aligned", search.rows,
                  static_cast<const void*>(search.query), static_cast<const void*>(search.allowed));
    }
  }
  return {};
}

}  // namespace

Result<DeviceMemory> Device::AllocTopKWorkspace(const DeviceTopK& topk) {
  INFERSCALE_TRY(CheckTopK(topk));
  const cuda::PluginTopK plain = PlainTopK(topk, nullptr);
  const uint64_t bytes = plugin_.topk_workspace(&plain);
  if (bytes < cuda::kTopKTicketBytes) {
    return Fail(Code::kTransient, "CUDA device {} can't be asked for its size", ordinal_);
  }
  INFERSCALE_ASSIGN(DeviceMemory memory, Alloc(bytes));
  INFERSCALE_TRY(Fill(memory.data(), 0, cuda::kTopKTicketBytes, nullptr));
  INFERSCALE_TRY(Synchronize(nullptr));  // whichever stream uses it first
  return memory;
}

Status Device::TopK(const DeviceTopK& topk, const DeviceMemory& workspace, DeviceStream stream) {
  INFERSCALE_TRY(CheckTopK(topk));
  const cuda::PluginTopK plain = PlainTopK(topk, workspace.data());
  if (const uint64_t bytes = plugin_.topk_workspace(&plain); workspace.bytes() < bytes) {
    return Fail(Code::kInvalid, "a workspace of {} bytes, {} are needed", workspace.bytes(), bytes);
  }
  if (topk.searches.empty()) return {};
  if (topk.out_rows == nullptr || topk.out_scores == nullptr) {
    return Fail(Code::kInvalid, "a search without a place for its results");
  }
  return Check(plugin_.topk(&plain, stream), "search");
}

}  // namespace inferscale
