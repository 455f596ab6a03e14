#include "transfer_case.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "../kv/random_rope.h"
#include "ops/element.h"

namespace inferscale {

namespace {

constexpr Dtype kDtypes[] = {Dtype::kF32, Dtype::kF16, Dtype::kBF16, Dtype::kI8, Dtype::kF8E4M3};

constexpr double kLargest = 65520;  // among finite values, or of what an f16 infinity came from

double RandomValue(Random& random, Values values) {
  if (values == Values::kHard && random.Chance(0.01)) {
    return random.Pick({0.0, -0.0, 6e-8, -3e-6, 65504.0, -65519.9, kLargest, 1e-20, 3e4, HUGE_VAL,
                        -HUGE_VAL, std::nan("")});
  }
  return random.Normal() * (random.Chance(0.05) ? 30 : 1);
}

}  // namespace

TransferCase::TransferCase(Random& random, Values values, Records kinds) {
  const uint32_t k_dim = random.Chance(0.6) ? random.Pick({32U, 64U, 80U, 96U, 128U})
                                            : random.Between<uint32_t>(1, 100);
  const KvShape shape{.layers = random.Between<uint32_t>(1, 4),
                      .kv_heads = random.Between<uint32_t>(1, 5),
                      .k_dim = k_dim,
                      .v_dim = random.Chance(0.6) ? k_dim : random.Between<uint32_t>(1, 100),
                      .dtype = Dtype::kF16};
  cache_dtype = kDtypes[random.Between(0, 2)];
  MakeRopes(random, shape.layers, k_dim);
  MakeRecords(random, shape, values, kinds);
  MakeLayout(random, shape);
  MakeSlots(random);
}

void TransferCase::MakeRopes(Random& random, uint32_t layers, uint32_t k_dim) {
  const int count = random.Between(1, 3);
  for (int i = 0; i < count; ++i) tables.emplace_back(RandomRope(random, k_dim));
  for (uint32_t l = 0; l < layers; ++l) {
    layer_table.push_back(static_cast<uint8_t>(random.Between(0, count - 1)));
  }
}

// Any code, and scales over a few powers of two, as calibration makes them.
void TransferCase::FillQuantised(Random& random, Values values, const FactKvView& record,
                                 std::byte* bytes) {
  const size_t planes = record.shape.layers * record.LayerBytes();
  for (size_t i = 0; i < planes; ++i) {
    bytes[i] = static_cast<std::byte>(random.Between(0, 255));
    const bool nan =
        record.shape.dtype == Dtype::kF8E4M3 && (bytes[i] | std::byte{0x80}) == std::byte{0xFF};
    if (nan && values == Values::kOrdinary) bytes[i] = std::byte{0};
  }
  for (size_t i = 0; i < (record.SizeBytes() - planes) / sizeof(float); ++i) {
    const float scale = random.Chance(0.02) ? 0.0F : std::exp2(random.Between(-12.0F, -4.0F));
    std::memcpy(bytes + planes + i * sizeof(float), &scale, sizeof(float));
  }
}

void TransferCase::MakeRecords(Random& random, const KvShape& shape, Values values, Records kinds) {
  key_scales.resize(shape.KeyScales());
  for (float& scale : key_scales) scale = std::exp2(random.Between(-12.0F, -4.0F));
  const int count = random.Between(1, 4);
  record_bytes.resize(static_cast<size_t>(count));
  for (std::vector<std::byte>& bytes : record_bytes) {
    KvShape own = shape;
    own.dtype = kDtypes[random.Between(0, kinds == Records::kPlain ? 2 : 4)];
    const auto tokens = random.Chance(0.1) ? 70U : random.Between<uint32_t>(1, 20);
    bytes.resize(tokens * own.TokenBytes());
    const bool quantised = IsQuantised(own.dtype);
    records.push_back({own, tokens, bytes.data(), quantised ? key_scales.data() : nullptr});
    if (quantised) {
      FillQuantised(random, values, records.back(), bytes.data());
    } else {
      for (size_t i = 0; i < bytes.size() / DtypeSize(own.dtype); ++i) {
        WriteElement(bytes.data(), own.dtype, i, RandomValue(random, values));
      }
    }
    CacheSpan span;
    span.record_token = random.Chance(0.5) ? 0 : random.Between<uint32_t>(0, tokens - 1);
    span.tokens = random.Chance(0.5) ? tokens - span.record_token
                                     : random.Between<uint32_t>(0, tokens - span.record_token);
    span.position = random.Chance(0.2) ? 0 : random.Between(0, 8192);
    spans.push_back(span);
  }
}

void TransferCase::MakeLayout(Random& random, const KvShape& shape) {
  const auto size = static_cast<int64_t>(DtypeSize(cache_dtype));
  const int64_t k_head = shape.k_dim * size, v_head = shape.v_dim * size, heads = shape.kv_heads;
  const int64_t tokens = std::accumulate(spans.begin(), spans.end(), int64_t{0},
                                         [](int64_t sum, const auto& s) { return sum + s.tokens; });
  page_tokens = random.Chance(0.3) ? 0 : random.Pick({1U, 2U, 16U, 17U, 256U});
  const int64_t page = page_tokens == 0 ? tokens + 40 : page_tokens;
  const int64_t pages = page_tokens == 0 ? 1 : tokens / page + 3;
  slot_count_ = page * pages;
  const int64_t gap = random.Pick({0, 2, 7, 64});  // 7: unaligned
  int64_t v_offset = 0, v_end = 0;  // of V's first element, and of both halves, from K's base
  switch (random.Between(0, 4)) {
    case 0:
      layout_name_ = "rows, K then V";
      k = {page * (heads * k_head), heads * k_head, k_head};
      v = {page * (heads * v_head), heads * v_head, v_head};
      v_offset = pages * k.page + gap;
      v_end = v_offset + pages * v.page;
      break;
    case 1:
      layout_name_ = "padded rows";
      k = {page * (heads * k_head + gap), heads * k_head + gap, k_head};
      v = {page * (heads * (v_head + gap)), heads * (v_head + gap), v_head + gap};
      v_offset = pages * k.page;
      v_end = v_offset + pages * v.page;
      break;
    case 2:
      layout_name_ = "[page][head][token]";
      k = {heads * page * k_head, k_head, page * k_head};
      v = {heads * page * v_head, v_head, page * v_head};
      v_offset = pages * k.page + gap;
      v_end = v_offset + pages * v.page;
      break;
    case 3:
      layout_name_ = "[page][token][head][K, V]";
      k = {page * heads * (k_head + v_head), heads * (k_head + v_head), k_head + v_head};
      v = k;
      v_offset = k_head;
      v_end = pages * k.page;
      break;
    case 4:
      layout_name_ = "[page][K, V][token][head]";
      k = {page * heads * (k_head + v_head), heads * k_head, k_head};
      v = {page * heads * (k_head + v_head), heads * v_head, v_head};
      v_offset = page * heads * k_head;
      v_end = pages * k.page;
      break;
  }
  cache.assign(static_cast<size_t>(shape.layers * (v_end + gap) + gap), std::byte{0xA5});
  for (uint32_t l = 0; l < shape.layers; ++l) {
    k_base.push_back(cache.data() + gap + l * (v_end + gap));
    v_base.push_back(k_base.back() + v_offset);
  }
}

void TransferCase::MakeSlots(Random& random) {
  std::vector<int64_t> free(static_cast<size_t>(slot_count_));
  std::iota(free.begin(), free.end(), 0);
  const int mode = random.Between(0, 2);
  if (mode == 1) std::shuffle(free.begin(), free.end(), random.engine());
  int64_t spare = slot_count_;
  for (const CacheSpan& span : spans) spare -= span.tokens;
  slots_.resize(spans.size());
  size_t next = 0;
  for (size_t s = 0; s < spans.size(); ++s) {
    const int64_t skip = random.Between<int64_t>(0, std::min<int64_t>(spare, 5));
    spare -= skip;
    next += static_cast<size_t>(skip);
    if (spans[s].tokens > 0) spans[s].first_slot = free[next];
    slots_[s].assign(free.begin() + static_cast<ptrdiff_t>(next),
                     free.begin() + static_cast<ptrdiff_t>(next + spans[s].tokens));
    next += spans[s].tokens;
    if (mode != 0) spans[s].slots = slots_[s];
  }
}

CacheLayout TransferCase::layout() const {
  return {k_base, v_base, k, v, page_tokens, cache_dtype};
}

std::vector<InjectSpan> TransferCase::inject_spans() const {
  std::vector<InjectSpan> out;
  for (size_t s = 0; s < spans.size(); ++s) out.push_back({records[s], spans[s]});
  return out;
}

std::vector<CaptureSpan> TransferCase::capture_spans(
    std::vector<std::vector<std::byte>>& into) const {
  std::vector<CaptureSpan> out;
  for (size_t s = 0; s < spans.size(); ++s) {
    out.push_back({{records[s].shape, records[s].tokens, into[s].data()}, spans[s]});
  }
  return out;
}

std::byte* TransferCase::CacheRow(bool is_k, size_t s, uint32_t token, uint32_t layer,
                                  uint32_t head) const {
  const CacheStrides& strides = is_k ? k : v;
  const int64_t slot = spans[s].slots.empty() ? spans[s].first_slot + token : spans[s].slots[token];
  const int64_t pages = page_tokens == 0 ? 0 : slot / page_tokens;
  return (is_k ? k_base : v_base)[layer] + pages * strides.page +
         (slot - pages * page_tokens) * strides.token + head * strides.head;
}

std::string TransferCase::Describe() const {
  std::string text =
      fmt::format("cache {} {}, pages of {}", DtypeName(cache_dtype), layout_name_, page_tokens);
  for (const RopeTable& table : tables) {
    text += fmt::format("; rope kind {} of {}", static_cast<int>(table.spec().kind),
                        table.spec().rotary_dims);
  }
  for (size_t s = 0; s < spans.size(); ++s) {
    text += fmt::format("; {}: tokens {}+{} at {}{}", records[s].shape.ToString(),
                        spans[s].record_token, spans[s].tokens, spans[s].first_slot,
                        spans[s].slots.empty() ? "" : " and other slots");
  }
  return text;
}

void ExpectClose(const std::byte* got, const std::byte* want, Dtype dtype, uint32_t dims,
                 Agreement& agreement) {
  const size_t size = DtypeSize(dtype);
  agreement.elements += dims;
  if (std::memcmp(got, want, dims * size) == 0) return;
  double largest = 0;
  for (uint32_t d = 0; d < dims; ++d) {
    const double value = std::abs(ReadElement(want, dtype, d));
    largest = std::max(largest, std::isfinite(value) ? value : kLargest);
  }
  for (uint32_t d = 0; d < dims; ++d) {
    if (std::memcmp(got + d * size, want + d * size, size) == 0) continue;
    const double a = ReadElement(got, dtype, d);
    const double b = ReadElement(want, dtype, d);
    if (std::isnan(a) && std::isnan(b)) continue;  // which NaN is nobody's promise
    ++agreement.different;
    uint32_t bits_a = 0, bits_b = 0;
    std::memcpy(&bits_a, got + d * size, size);
    std::memcpy(&bits_b, want + d * size, size);
    const bool one_ulp = bits_a + 1 == bits_b || bits_b + 1 == bits_a || (a == 0 && b == 0);
    ASSERT_TRUE(one_ulp || std::abs(a - b) <= largest * 0x1p-22)
        << "dim " << d << " is " << a << ", not " << b;
  }
}

std::vector<int64_t> SimdTargets() {
  std::vector<int64_t> targets;
  for (uint64_t left = static_cast<uint64_t>(hwy::SupportedTargets()); left != 0;
       left &= left - 1) {
    const auto target = static_cast<int64_t>(left & (~left + 1));
    if ((target & (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_NEON)) != 0) {
      targets.push_back(target);
    }
  }
  return targets;
}

void UseSimdTarget(int64_t target) { hwy::GetChosenTarget().Update(target); }

}  // namespace inferscale
