#include "device_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "../kv/random_rope.h"
#include "kv/element_bits.h"
#include "ops/element.h"

namespace inferscale {

namespace {

struct Pair {
  Dtype record, cache;
};

constexpr Pair kPairs[] = {
#define DIM(value)
#define PAIR(record, cache) {Dtype::record, Dtype::cache},
#include "ops/cuda/instances.def"
#undef PAIR
#undef DIM
};

constexpr uint32_t kDims[] = {
#define DIM(value) value,
#define PAIR(record, cache)
#include "ops/cuda/instances.def"
#undef PAIR
#undef DIM
};

constexpr std::byte kPoison{0xA5};
constexpr uint32_t kPositions = 700;

void Must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message);
}

DeviceMemory Must(Result<DeviceMemory> memory) {
  if (!memory) throw std::runtime_error(memory.error().message);
  return std::move(*memory);
}

// Of two's complement, or of sign and magnitude: neighbours differ by one.
int64_t Ordinal(const std::byte* at, Dtype dtype) {
  if (dtype == Dtype::kI8) {
    int8_t value = 0;
    std::memcpy(&value, at, 1);
    return value;
  }
  uint32_t bits = 0;
  std::memcpy(&bits, at, DtypeSize(dtype));
  const uint32_t sign = 1U << (8 * DtypeSize(dtype) - 1);
  return (bits & sign) != 0 ? -static_cast<int64_t>(bits & ~sign) : static_cast<int64_t>(bits);
}

// A head's elements, to a unit in the last place or to what cancels in float.
void ExpectCloseHead(const std::byte* got, const std::byte* want, Dtype dtype, uint32_t dims,
                     size_t& different) {
  const size_t size = DtypeSize(dtype);
  if (std::memcmp(got, want, dims * size) == 0) return;
  double largest = 0;
  for (uint32_t d = 0; d < dims; ++d) {
    largest = std::max(largest, std::abs(ReadElement(want, dtype, d)));
  }
  for (uint32_t d = 0; d < dims; ++d) {
    if (std::memcmp(got + d * size, want + d * size, size) == 0) continue;
    ++different;
    const double a = ReadElement(got, dtype, d), b = ReadElement(want, dtype, d);
    const int64_t steps =
        std::abs(Ordinal(got + d * size, dtype) - Ordinal(want + d * size, dtype));
    ASSERT_TRUE(steps <= 1 || std::abs(a - b) <= largest * 0x1p-21)
        << "dim " << d << " is " << a << ", not " << b;
  }
}

}  // namespace

DeviceCase::DeviceCase(Device& device, Random& random, const DeviceCaseLimits& limits)
    : device_(device) {
  const Pair pair = kPairs[random.Between<size_t>(0, std::size(kPairs) - 1)];
  record_dtype = limits.integers && IsQuantised(pair.record) ? Dtype::kBF16 : pair.record;
  spec_.dtype = limits.integers ? record_dtype : pair.cache;
  spec_.dim = kDims[random.Between<size_t>(0, std::size(kDims) - 1)];
  spec_.heads = random.Chance(0.7) ? random.Pick({1U, 2U, 4U, 8U}) : random.Between(1U, 20U);
  record_layers_ = random.Between(1U, limits.max_layers);
  layers_ = record_layers_;
  if (random.Chance(0.4)) {  // a group of a record's layers, in any order
    spec_.record_layer.resize(record_layers_);
    std::iota(spec_.record_layer.begin(), spec_.record_layer.end(), 0U);
    std::shuffle(spec_.record_layer.begin(), spec_.record_layer.end(), random.engine());
    layers_ = random.Between(1U, record_layers_);
    spec_.record_layer.resize(layers_);
    spec_.record_layers = record_layers_;
  }
  MakeRopes(random, limits.integers);
  MakeRecords(random, limits);
  MakeLayout(random);
  Must(device_.Synchronize(nullptr));
}

void DeviceCase::MakeRopes(Random& random, bool integers) {
  const RopeKind kind = random.Pick({RopeKind::kNeox, RopeKind::kInterleaved});
  const int count = random.Between(1, 3);
  for (int i = 0; i < count; ++i) {
    RopeSpec spec = RandomRope(random, spec_.dim);
    spec.rotary_dims = spec.rotary_dims / 16 * 16;
    if (integers || spec.rotary_dims == 0) {
      spec = RopeSpec{.head_dim = spec_.dim};
    } else {
      spec.kind = kind;
      // As many as there are pairs now; other settings are made for the dims they came with.
      spec.frequency_factors.resize(spec.frequency_factors.empty() ? 0 : spec.rotary_dims / 2,
                                    1.0F);
    }
    tables_.emplace_back(spec);
  }
  for (uint32_t l = 0; l < layers_; ++l) {
    layer_table_.push_back(static_cast<uint8_t>(random.Between(0, count - 1)));
  }
}

void DeviceCase::FillNumbers(Random& random, bool integers, Dtype dtype, std::byte* to,
                             size_t count) const {
  for (size_t i = 0; i < count; ++i) {
    double value = random.Normal();
    if (integers) {
      value = random.Between(-128, 128);
    } else if (IsQuantised(dtype)) {
      value *= 60;
    } else if (random.Chance(0.05)) {
      value *= 30;
    }
    WriteElement(to, dtype, i, value);
  }
}

void DeviceCase::MakeRecords(Random& random, const DeviceCaseLimits& limits) {
  const KvShape shape = {record_layers_, spec_.heads, spec_.dim, spec_.dim, record_dtype};
  spec_.page_tokens = random.Pick({8U, 16U, 16U, 24U, 32U, 64U, 256U});
  const uint32_t count = random.Between(1U, limits.max_spans);
  uint32_t list_token = random.Between(0U, 2 * spec_.page_tokens);
  for (uint32_t i = 0; i < count; ++i) {
    DeviceSpan span;
    span.record_tokens = random.Between(1U, limits.max_span_tokens);
    span.first = random.Chance(0.6) ? 0 : random.Between(0U, span.record_tokens - 1);
    span.tokens = random.Chance(0.6) ? span.record_tokens - span.first
                                     : random.Between(0U, span.record_tokens - span.first);
    span.position = random.Between(0, static_cast<int32_t>(kPositions - span.tokens));
    // Facts of one request follow each other; another request begins on another page.
    if (random.Chance(0.2)) {
      list_token = (list_token / spec_.page_tokens + random.Between(1U, 3U)) * spec_.page_tokens;
    } else if (random.Chance(0.3)) {
      list_token += random.Between(0U, 20U);
    }
    span.page_token = list_token;
    list_token += span.tokens;
    std::vector<std::byte>& bytes = records_.emplace_back(span.record_tokens * shape.TokenBytes());
    const size_t elements =
        2 * size_t{record_layers_} * span.record_tokens * spec_.heads * spec_.dim;
    FillNumbers(random, limits.integers, record_dtype, bytes.data(), elements);
    if (IsQuantised(record_dtype)) {
      for (size_t at = elements; at < bytes.size(); at += sizeof(float)) {
        const float scale = random.Chance(0.05) ? 0.0F : random.Between(0.001F, 0.1F);
        std::memcpy(bytes.data() + at, &scale, sizeof(scale));
      }
    }
    device_records_.push_back(Must(device_.Alloc(bytes.size())));
    span.record = device_records_.back().data();
    Must(device_.Copy(span.record, bytes.data(), bytes.size(), cuda::kHostToDevice, nullptr));
    spans.push_back(span);
  }
  if (IsQuantised(record_dtype)) {
    for (size_t i = 0; i < shape.KeyScales(); ++i) {
      key_scales_.push_back(random.Between(0.001F, 0.1F));
    }
    device_scales_ = Must(device_.Alloc(key_scales_.size() * sizeof(float)));
    Must(device_.Copy(device_scales_.data(), key_scales_.data(), device_scales_.bytes(),
                      cuda::kHostToDevice, nullptr));
  }
  const uint32_t used = list_token / spec_.page_tokens + 1;
  spec_.pages = used + random.Between(0U, 3U);
  pages.resize(spec_.pages);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random.engine());
  pages.resize(used);
}

void DeviceCase::MakeLayout(Random& random) {
  const auto head = static_cast<int64_t>(spec_.dim * DtypeSize(spec_.dtype));
  const int64_t heads = spec_.heads, tokens = spec_.page_tokens, pages_in = spec_.pages;
  int64_t v_offset = 0, layer_bytes = 0;  // of V's first element and of both, from K's
  switch (random.Between(0, 4)) {
    case 0:
      layout_ = "[page][token][head][K, V]";
      spec_.k = {tokens * heads * 2 * head, heads * 2 * head, 2 * head};
      spec_.v = spec_.k;
      v_offset = head;
      layer_bytes = pages_in * spec_.k.page;
      break;
    case 1:
      layout_ = "[K, V][page][token][head]";
      spec_.k = {tokens * heads * head, heads * head, head};
      spec_.v = spec_.k;
      v_offset = pages_in * spec_.k.page;
      layer_bytes = 2 * v_offset;
      break;
    case 2:
      layout_ = "[page][K, V][token][head]";
      spec_.k = {2 * tokens * heads * head, heads * head, head};
      spec_.v = spec_.k;
      v_offset = tokens * heads * head;
      layer_bytes = pages_in * spec_.k.page;
      break;
    case 3:
      layout_ = "[K, V][page][head][token]";
      spec_.k = {tokens * heads * head, head, tokens * head};
      spec_.v = spec_.k;
      v_offset = pages_in * spec_.k.page;
      layer_bytes = 2 * v_offset;
      break;
    case 4:
      layout_ = "padded rows";
      spec_.k = {tokens * (heads * head + 64), heads * head + 64, head};
      spec_.v = {tokens * heads * (head + 32), heads * (head + 32), head + 32};
      v_offset = pages_in * spec_.k.page;
      layer_bytes = v_offset + pages_in * spec_.v.page;
      break;
  }
  const int64_t gap = random.Pick({0, 16, 256});
  for (uint32_t l = 0; l < layers_; ++l) {
    k_offset_.push_back(static_cast<size_t>(gap + l * (layer_bytes + gap)));
    v_offset_.push_back(k_offset_.back() + static_cast<size_t>(v_offset));
  }
  cache_bytes_.assign(static_cast<size_t>(layers_ * (layer_bytes + gap) + gap), kPoison);
  if (spec_.dtype == Dtype::kF8E4M3 && random.Chance(0.7)) {
    const uint32_t scale_heads = random.Chance(0.5) ? 1 : spec_.heads;
    for (uint32_t i = 0; i < layers_ * scale_heads; ++i) {
      spec_.k_scale.push_back(random.Between(0.01F, 0.5F));
      spec_.v_scale.push_back(random.Between(0.01F, 0.5F));
    }
  }
  // What capture reads.
  ForEachHead([&](const Head& at) {
    for (const bool is_k : {true, false}) {
      FillNumbers(random, false, spec_.dtype, cache_bytes_.data() + CacheOffset(is_k, at),
                  spec_.dim);
    }
  });
  device_cache_ = Must(device_.Alloc(cache_bytes_.size()));
  for (uint32_t l = 0; l < layers_; ++l) {
    const auto base = reinterpret_cast<uint64_t>(device_cache_.data());
    spec_.k_base.push_back(base + k_offset_[l]);
    spec_.v_base.push_back(base + v_offset_[l]);
  }
  ResetCache();
  auto described = device_.Describe(spec_, {tables_, layer_table_}, kPositions);
  if (!described) throw std::runtime_error(described.error().message);
  described_ = std::move(*described);
}

DeviceTransfer DeviceCase::transfer() const {
  return {record_dtype,
          key_scales_.empty() ? nullptr : reinterpret_cast<const float*>(device_scales_.data()),
          spans, pages};
}

template <typename Visit>
void DeviceCase::ForEachHead(Visit visit) const {
  for (size_t s = 0; s < spans.size(); ++s) {
    for (uint32_t t = 0; t < spans[s].tokens; ++t) {
      for (uint32_t l = 0; l < layers_; ++l) {
        for (uint32_t h = 0; h < spec_.heads; ++h) visit(Head{s, t, l, h});
      }
    }
  }
}

size_t DeviceCase::CacheOffset(bool is_k, const Head& at) const {
  const CacheStrides& strides = is_k ? spec_.k : spec_.v;
  const uint32_t token = spans[at.span].page_token + at.token;
  const int64_t page = pages[token / spec_.page_tokens];
  return (is_k ? k_offset_ : v_offset_)[at.layer] +
         static_cast<size_t>(page * strides.page + token % spec_.page_tokens * strides.token +
                             at.head * strides.head);
}

size_t DeviceCase::RecordOffset(bool is_k, const Head& at) const {
  const DeviceSpan& span = spans[at.span];
  const size_t plane = 2 * size_t{RecordLayer(at.layer)} + (is_k ? 0 : 1);
  const size_t row = (plane * span.record_tokens + span.first + at.token) * spec_.heads + at.head;
  return row * spec_.dim * DtypeSize(record_dtype);
}

uint32_t DeviceCase::RecordLayer(uint32_t layer) const {
  return spec_.record_layer.empty() ? layer : spec_.record_layer[layer];
}

double DeviceCase::Scale(bool is_k, const Head& at) const {
  const std::vector<float>& scales = is_k ? spec_.k_scale : spec_.v_scale;
  if (scales.empty()) return 1;
  return scales.size() == layers_ ? scales[at.layer] : scales[at.layer * spec_.heads + at.head];
}

void DeviceCase::Turn(const Head& at, bool back, std::vector<double>& x) const {
  const RopeTable& table = tables_[layer_table_[at.layer]];
  const uint32_t pairs = table.pairs();
  std::vector<float> cos(pairs), sin(pairs);
  table.Fill(spans[at.span].position + static_cast<int32_t>(at.token), cos, sin);
  for (uint32_t i = 0; i < pairs; ++i) {
    const bool neox = table.spec().kind == RopeKind::kNeox;
    double& a = x[neox ? i : 2 * i];
    double& b = x[neox ? i + pairs : 2 * i + 1];
    const double square = double{cos[i]} * cos[i] + double{sin[i]} * sin[i];
    const double c = back ? cos[i] / square : cos[i];
    const double s = back ? -sin[i] / square : sin[i];
    const double y = a;
    a = y * c - b * s;
    b = b * c + y * s;
  }
}

FactKvView DeviceCase::View(const std::vector<std::byte>& record, size_t span) const {
  return {{record_layers_, spec_.heads, spec_.dim, spec_.dim, record_dtype},
          spans[span].record_tokens,
          record.data(),
          key_scales_.data()};
}

std::vector<std::byte> DeviceCase::InjectedCache() const {
  std::vector<std::byte> cache = cache_bytes_;
  std::vector<double> x(spec_.dim);
  ForEachHead([&](const Head& at) {
    const FactKvView view = View(records_[at.span], at.span);
    const size_t token = spans[at.span].first + at.token;
    for (const bool is_k : {true, false}) {
      for (uint32_t d = 0; d < spec_.dim; ++d) {
        x[d] = is_k ? ReadK(view, RecordLayer(at.layer), token, at.head, d)
                    : ReadV(view, RecordLayer(at.layer), token, at.head, d);
      }
      if (is_k) Turn(at, false, x);
      for (uint32_t d = 0; d < spec_.dim; ++d) {
        WriteElement(cache.data() + CacheOffset(is_k, at), spec_.dtype, d, x[d] / Scale(is_k, at));
      }
    }
  });
  return cache;
}

std::vector<std::byte> DeviceCase::CapturedRecord(size_t span) const {
  std::vector<std::byte> record(records_[span].size(), kPoison);
  const KvShape shape = {record_layers_, spec_.heads, spec_.dim, spec_.dim, record_dtype};
  const MutableFactKvView view{shape, spans[span].record_tokens, record.data()};
  const float limit = record_dtype == Dtype::kI8 ? kI8Max : kF8Max;
  std::vector<double> x(spec_.dim);
  ForEachHead([&](const Head& at) {
    if (at.span != span) return;
    for (const bool is_k : {true, false}) {
      const std::byte* from = cache_bytes_.data() + CacheOffset(is_k, at);
      // What codec.h does in float is done in float here too.
      float largest = 0;
      for (uint32_t d = 0; d < spec_.dim; ++d) {
        const auto value = static_cast<float>(ReadElement(from, spec_.dtype, d) * Scale(is_k, at));
        largest = std::max(largest, std::abs(value));
        x[d] = value;
      }
      if (is_k) Turn(at, true, x);
      std::byte* to = record.data() + RecordOffset(is_k, at);
      const float value_scale = largest / limit;
      if (!is_k && IsQuantised(record_dtype)) {
        const size_t row = (spans[span].first + at.token) * spec_.heads + at.head;
        std::memcpy(view.VScales(RecordLayer(at.layer)) + row * sizeof(float), &value_scale,
                    sizeof(float));
      }
      for (uint32_t d = 0; d < spec_.dim; ++d) {
        if (!IsQuantised(record_dtype)) {
          WriteElement(to, record_dtype, d, x[d]);
          continue;
        }
        const float scale =
            is_k ? key_scales_[(RecordLayer(at.layer) * spec_.heads + at.head) * spec_.dim + d]
                 : value_scale;
        WriteElement(to, record_dtype, d, scale == 0 ? 0 : static_cast<float>(x[d]) / scale);
      }
    }
  });
  return record;
}

std::vector<std::byte> DeviceCase::Download(const void* from, size_t bytes) const {
  std::vector<std::byte> out(bytes);
  Must(device_.Synchronize(nullptr));
  Must(device_.Copy(out.data(), from, bytes, cuda::kDeviceToHost, nullptr));
  Must(device_.Synchronize(nullptr));
  return out;
}

std::vector<std::byte> DeviceCase::Cache() const {
  return Download(device_cache_.data(), cache_bytes_.size());
}

std::vector<std::byte> DeviceCase::Record(size_t span) const {
  return Download(spans[span].record, records_[span].size());
}

void DeviceCase::ResetCache() const {
  Must(device_.Copy(device_cache_.data(), cache_bytes_.data(), cache_bytes_.size(),
                    cuda::kHostToDevice, nullptr));
  Must(device_.Synchronize(nullptr));
}

void DeviceCase::PoisonRecords() const {
  for (size_t s = 0; s < spans.size(); ++s) {
    Must(device_.Fill(spans[s].record, static_cast<int>(kPoison), records_[s].size(), nullptr));
  }
}

template <typename OffsetOf>
DeviceCase::Compared DeviceCase::CompareHeads(std::optional<size_t> span, Dtype dtype,
                                              OffsetOf offset_of, const std::vector<std::byte>& got,
                                              const std::vector<std::byte>& want) const {
  Compared out = {.rest = got};
  ForEachHead([&](const Head& at) {
    if (span && at.span != *span) return;
    for (const bool is_k : {true, false}) {
      const size_t offset = offset_of(is_k, at);
      SCOPED_TRACE(fmt::format("span {} token {} layer {} head {} {}", at.span, at.token, at.layer,
                               at.head, is_k ? "K" : "V"));
      ExpectCloseHead(&got[offset], &want[offset], dtype, spec_.dim, out.different);
      const size_t bytes = spec_.dim * DtypeSize(dtype);
      std::copy_n(want.begin() + static_cast<ptrdiff_t>(offset), bytes,
                  out.rest.begin() + static_cast<ptrdiff_t>(offset));
      out.elements += spec_.dim;
    }
  });
  return out;
}

void DeviceCase::ExpectSameCache(const std::vector<std::byte>& got,
                                 const std::vector<std::byte>& want) const {
  const Compared heads = CompareHeads(
      std::nullopt, spec_.dtype, [&](bool is_k, const Head& at) { return CacheOffset(is_k, at); },
      got, want);
  EXPECT_LE(heads.different, heads.elements / 1000 + 3) << "of " << heads.elements;
  EXPECT_TRUE(heads.rest == want) << "bytes beside the spans were written";
}

void DeviceCase::ExpectSameRecord(size_t span, const std::vector<std::byte>& got,
                                  const std::vector<std::byte>& want) const {
  const Compared heads = CompareHeads(
      span, record_dtype, [&](bool is_k, const Head& at) { return RecordOffset(is_k, at); }, got,
      want);
  EXPECT_LE(heads.different, heads.elements / 500 + 5) << "of " << heads.elements;
  // Scales and what lies beside the span.
  EXPECT_TRUE(heads.rest == want) << "scales differ, or bytes beside the span were written";
}

std::string DeviceCase::Describe() const {
  std::string text =
      fmt::format("records {}, cache {} {}, {} of {} layers, {} heads of {}, pages of {}",
                  DtypeName(record_dtype), DtypeName(spec_.dtype), layout_, layers_, record_layers_,
                  spec_.heads, spec_.dim, spec_.page_tokens);
  for (const RopeTable& table : tables_) {
    text += fmt::format("; rope kind {} of {}", static_cast<int>(table.spec().kind),
                        table.spec().rotary_dims);
  }
  for (const DeviceSpan& span : spans) {
    text += fmt::format("; {}+{} of {} at {}, token {} of the list", span.first, span.tokens,
                        span.record_tokens, span.position, span.page_token);
  }
  return text;
}

}  // namespace inferscale
