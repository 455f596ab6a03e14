#include "engine_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/capture/capture.h"
#include "ops/element.h"
#include "ops/inject/inject.h"

namespace inferscale {

EngineModel::EngineModel(Random& random, Place place) {
  const bool on_device = place == Place::kDevice;
  const uint32_t dim = on_device ? random.Pick({64U, 128U}) : 2 * random.Between<uint32_t>(1, 40);
  shape = {random.Between<uint32_t>(1, 5), random.Between<uint32_t>(1, 3), dim, dim,
           on_device ? Dtype::kBF16 : random.Pick({Dtype::kF32, Dtype::kF16, Dtype::kBF16})};
  cache_dtype = on_device ? Dtype::kBF16 : random.Pick({Dtype::kF32, Dtype::kF16, Dtype::kBF16});
  kind = random.Pick({RopeKind::kNeox, RopeKind::kInterleaved});
  positions = random.Between<uint32_t>(200, 400);
  const uint32_t tables = random.Between<uint32_t>(1, 3);
  for (uint32_t r = 0; r < tables; ++r) {
    uint32_t dims = random.Pick({dim, dim, dim / 2 / 16 * 16, 0U});
    if (!on_device && dims == 0 && random.Chance(0.5)) dims = dim / 4 * 2;
    rotary_dims.push_back(dims);
    const RopeTable rope(dims == 0 ? RopeSpec{}
                                   : RopeSpec{.kind = kind,
                                              .head_dim = dim,
                                              .rotary_dims = dims,
                                              .freq_base = random.Pick({1e4F, 5e5F}),
                                              .attn_factor = random.Pick({1.0F, 1.2F})});
    std::vector<float>& table = values.emplace_back(size_t{positions} * dims);
    for (uint32_t p = 0; p < positions && dims != 0; ++p) {
      float* row = table.data() + size_t{p} * dims;
      rope.Fill(static_cast<int32_t>(p), {row, dims / 2}, {row + dims / 2, dims / 2});
    }
  }
  for (uint32_t l = 0; l < shape.layers; ++l) {
    layer_rope.push_back(random.Between<uint32_t>(0, tables - 1));
  }
  std::vector<uint32_t> order(shape.layers);
  std::iota(order.begin(), order.end(), 0U);
  if (random.Chance(0.5)) std::shuffle(order.begin(), order.end(), random.engine());
  const auto cut = random.Chance(0.5) ? 0 : random.Between<ptrdiff_t>(0, shape.layers);
  groups = {{order.begin(), order.begin() + cut}, {order.begin() + cut, order.end()}};
  std::erase_if(groups, [](const auto& group) { return group.empty(); });
}

std::string EngineModel::Describe() const {
  return fmt::format("{} records, {} caches of {}, {} rope tables of kind {}", shape.ToString(),
                     groups.size(), DtypeName(cache_dtype), rotary_dims.size(),
                     static_cast<int>(kind));
}

EngineCache::EngineCache(Random& random, const EngineModel& model, size_t group, uint32_t tokens)
    : page_tokens(random.Between<uint32_t>(1, 17)),
      page_count((tokens + page_tokens - 1) / page_tokens + random.Between<uint32_t>(1, 4)),
      pages(page_count),
      model_(model),
      layers_(model.groups[group]) {
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random.engine());
  LayOut(random);
  Poison();
}

// [layer] planes of K and of V, each with the page, token and head in some order and gaps between.
void EngineCache::LayOut(Random& random) {
  const auto row = static_cast<int64_t>(model_.shape.k_dim * DtypeSize(model_.cache_dtype));
  uint64_t end = 0;
  for (Half* half : {&k_, &v_}) {
    std::vector<int64_t*> order = {&half->strides.page, &half->strides.token, &half->strides.head};
    std::shuffle(order.begin(), order.end(), random.engine());
    int64_t stride = row + 16 * random.Between(0, 1);
    for (int64_t* at : order) {
      *at = stride;
      const int64_t count = at == &half->strides.page    ? page_count
                            : at == &half->strides.token ? page_tokens
                                                         : model_.shape.kv_heads;
      stride = (stride * count + 15) / 16 * 16;
    }
    for (size_t l = 0; l < layers_.size(); ++l) {
      half->offset.push_back(end);
      end += (static_cast<uint64_t>(stride) + 255) / 256 * 256;
    }
  }
  // Strides of elements on the device are multiples of eight of them; 16 bytes do for two.
  bytes.resize(end);
}

void EngineCache::Open(inferscale_device* device) {
  std::vector<uint64_t> k_base, v_base;
  for (size_t l = 0; l < layers_.size(); ++l) {
    k_base.push_back(reinterpret_cast<uint64_t>(bytes.data()) + k_.offset[l]);
    v_base.push_back(reinterpret_cast<uint64_t>(bytes.data()) + v_.offset[l]);
  }
  std::vector<const float*> tables;
  for (const auto& table : model_.values) tables.push_back(table.empty() ? nullptr : table.data());
  std::vector<uint32_t> layer_rope;
  for (const uint32_t layer : layers_) layer_rope.push_back(model_.layer_rope[layer]);
  inferscale_cache_spec spec = {};
  spec.size = sizeof(spec);
  spec.layers = static_cast<uint32_t>(layers_.size());
  spec.heads = model_.shape.kv_heads;
  spec.dim = model_.shape.k_dim;
  spec.page_tokens = page_tokens;
  spec.pages = page_count;
  spec.dtype = static_cast<uint32_t>(model_.cache_dtype);
  spec.k_base = k_base.data();
  spec.v_base = v_base.data();
  spec.k = k_.strides;
  spec.v = v_.strides;
  spec.record_layer = layers_.data();
  spec.record_layers = model_.shape.layers;
  spec.rope_tables = static_cast<uint32_t>(tables.size());
  spec.rope_kind = static_cast<uint32_t>(model_.kind);
  spec.positions = model_.positions;
  spec.rotary_dims = model_.rotary_dims.data();
  spec.rope = tables.data();
  spec.layer_rope = layer_rope.data();
  inferscale_cache* opened = nullptr;
  inferscale_error error = {};
  ASSERT_EQ(inferscale_cache_open(device, &spec, &opened, &error), INFERSCALE_OK) << error.message;
  handle_.reset(opened);
}

void EngineCache::FillWithNumbers(Random& random) {
  const size_t size = DtypeSize(model_.cache_dtype);
  for (size_t i = 0; i < bytes.size() / size; ++i) {
    WriteElement(bytes.data(), model_.cache_dtype, i, random.Normal());
  }
}

std::vector<int64_t> EngineCache::Slots(const EngineSpan& span) const {
  std::vector<int64_t> slots;
  for (uint32_t t = span.page_token; t < span.page_token + span.tokens; ++t) {
    slots.push_back(int64_t{pages.at(t / page_tokens)} * page_tokens + t % page_tokens);
  }
  return slots;
}

// One layer at a time, so that nothing is said twice about which layers are where.
template <typename Body>
void EngineCache::ForEachLayer(FactKvView record, const std::vector<std::byte>& cache,
                               const Body& body) const {
  const uint8_t first = 0;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const uint32_t dims = model_.rotary_dims[model_.layer_rope[layers_[l]]];
    const RopeTable table =
        dims == 0 ? RopeTable(RopeSpec{})
                  : RopeTable::FromValues(model_.kind, model_.shape.k_dim, dims,
                                          model_.values[model_.layer_rope[layers_[l]]])
                        .value();
    auto* base = const_cast<std::byte*>(cache.data());
    std::byte* const k = base + k_.offset[l];
    std::byte* const v = base + v_.offset[l];
    const auto strides = [](const inferscale_strides& s) {
      return CacheStrides{s.page, s.token, s.head};
    };
    const CacheLayout layout = {
        {&k, 1},     {&v, 1},           strides(k_.strides), strides(v_.strides),
        page_tokens, model_.cache_dtype};
    FactKvView part = record;
    part.data = record.K(layers_[l]);
    part.shape.layers = 1;
    const Status status = body(part, RopeTables{{&table, 1}, {&first, 1}}, layout);
    ASSERT_TRUE(status) << status.error().message;
  }
}

void EngineCache::Inject(FactKvView record, const EngineSpan& span,
                         std::vector<std::byte>& copy) const {
  const std::vector<int64_t> slots = Slots(span);
  ForEachLayer(record, copy, [&](FactKvView part, const RopeTables& ropes, const auto& layout) {
    const InjectSpan moved = {part, {span.record_token, span.tokens, span.position, 0, slots}};
    return InjectReference({&moved, 1}, ropes, layout);
  });
}

void EngineCache::Capture(MutableFactKvView record, const EngineSpan& span) const {
  const std::vector<int64_t> slots = Slots(span);
  ForEachLayer(record, bytes, [&](FactKvView part, const RopeTables& ropes, const auto& layout) {
    const CaptureSpan moved = {{part.shape, part.tokens, const_cast<std::byte*>(part.data)},
                               {span.record_token, span.tokens, span.position, 0, slots}};
    return CaptureReference({&moved, 1}, ropes, layout);
  });
}

void EngineCache::ExpectNear(const std::vector<std::byte>& want) const {
  ExpectElementsNear(bytes, want, model_.cache_dtype);
}

void ExpectElementsNear(std::span<const std::byte> got, std::span<const std::byte> want,
                        Dtype dtype) {
  ASSERT_EQ(got.size(), want.size());
  const size_t size = DtypeSize(dtype);
  const double step = dtype == Dtype::kBF16 ? 0x1p-7 : dtype == Dtype::kF16 ? 0x1p-10 : 0x1p-20;
  for (size_t i = 0; i < want.size() / size; ++i) {
    if (std::equal(&want[i * size], &want[i * size] + size, &got[i * size])) continue;
    // To a unit in the last place of the result, or of what was added to get it.
    const double a = ReadElement(got.data(), dtype, i);
    const double b = ReadElement(want.data(), dtype, i);
    ASSERT_LE(std::abs(a - b), std::abs(b) * step + 0x1p-18) << "element " << i;
  }
}

}  // namespace inferscale
