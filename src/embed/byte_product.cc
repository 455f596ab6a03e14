#include "embed/byte_product.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace inferscale {

ByteMatrix::ByteMatrix(std::span<const float> weights, size_t out)
    : in_(weights.size() / out),
      out_(out),
      codes_(MakeAligned<int8_t>(weights.size())),
      scales_(MakeAligned<float>(out)),
      sums_(MakeAligned<int32_t>(out)) {
  for (size_t o = 0; o < out; ++o) {
    const std::span<const float> row = weights.subspan(o * in_, in_);
    float most = 0;
    for (const float weight : row) most = std::max(most, std::abs(weight));
    const float inverse = most > 0 ? 127 / most : 0;
    int8_t* column = codes_.get() + o / kPanel * in_ * kPanel + o % kPanel * kGroup;
    int32_t sum = 0;
    for (size_t i = 0; i < in_; ++i) {
      const auto code = static_cast<int8_t>(std::lround(row[i] * inverse));
      column[i / kGroup * kGroup * kPanel + i % kGroup] = code;
      sum += code;
    }
    scales_[o] = most / 127;
    sums_[o] = sum;
  }
}

void PlainByteProduct(const ByteMatrix& weights, const float* bias, const uint8_t* x,
                      std::span<const RowCode> rows, float* y) {
  constexpr size_t kPanel = ByteMatrix::kPanel;
  constexpr size_t kGroup = ByteMatrix::kGroup;
  const size_t in = weights.in();
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t o = 0; o < weights.out(); ++o) {
      const int8_t* codes = weights.panel(o / kPanel) + o % kPanel * kGroup;
      int32_t dot = -rows[r].zero * weights.sums()[o];
      for (size_t i = 0; i < in; ++i) {
        dot += x[r * in + i] * codes[i / kGroup * kGroup * kPanel + i % kGroup];
      }
      y[r * weights.out() + o] =
          static_cast<float>(dot) * (rows[r].scale * weights.scales()[o]) + bias[o];
    }
  }
}

#if defined(__x86_64__)
// GCC 12 warns of its own intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
namespace {

#define INFERSCALE_VNNI __attribute__((target("avx512f,avx512vnni")))

constexpr size_t kRows = 12;  // with two sums each, 24 of 32 registers

// Rows times one panel. The panel and its columns' scales, sums and bias begin at the pointers.
struct Columns {
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;
  const float* bias;
};

INFERSCALE_VNNI inline void Finish(__m512i dot, const Columns& columns, size_t at,
                                   const RowCode& row, float* y) {
  const __m512i zeros =
      _mm512_mullo_epi32(_mm512_set1_epi32(row.zero), _mm512_loadu_si512(columns.sums + at));
  const __m512 scale =
      _mm512_mul_ps(_mm512_set1_ps(row.scale), _mm512_loadu_ps(columns.scales + at));
  _mm512_storeu_ps(y + at, _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(dot, zeros)), scale,
                                           _mm512_loadu_ps(columns.bias + at)));
}

// sums += the products of four pairs, 16 times. Not by intrinsic: GCC 12 copies every sum before
// and after it, which costs two fifths of the time.
INFERSCALE_VNNI inline void AddProducts(__m512i& sums, __m512i x, __m512i codes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(codes));
}

template <size_t kCount>
INFERSCALE_VNNI void Block(const Columns& columns, const uint8_t* __restrict x, const RowCode* rows,
                           size_t in, size_t out, float* __restrict y) {
  constexpr size_t kPanel = ByteMatrix::kPanel;
  __m512i low[kCount];
  __m512i high[kCount];
#pragma GCC unroll 12
  for (size_t r = 0; r < kCount; ++r) low[r] = high[r] = _mm512_setzero_si512();
  for (size_t k = 0; k < in; k += ByteMatrix::kGroup) {
    const int8_t* codes = columns.codes + k * kPanel;
    const __m512i w_low = _mm512_load_si512(codes);
    const __m512i w_high = _mm512_load_si512(codes + 64);
    // The next panel, to the L2 cache: a single text uses each weight too rarely to hide its way.
    __builtin_prefetch(codes + in * kPanel, 0, 2);
    __builtin_prefetch(codes + in * kPanel + 64, 0, 2);
#pragma GCC unroll 12
    for (size_t r = 0; r < kCount; ++r) {
      int32_t group = 0;
      std::memcpy(&group, x + r * in + k, sizeof(group));
      const __m512i value = _mm512_set1_epi32(group);
      AddProducts(low[r], value, w_low);
      AddProducts(high[r], value, w_high);
    }
  }
#pragma GCC unroll 12
  for (size_t r = 0; r < kCount; ++r) {
    Finish(low[r], columns, 0, rows[r], y + r * out);
    Finish(high[r], columns, kPanel / 2, rows[r], y + r * out);
  }
}

using BlockFunction = void (*)(const Columns&, const uint8_t*, const RowCode*, size_t, size_t,
                               float*);

}  // namespace
#pragma GCC diagnostic pop

bool HasByteProduct() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
}

void ByteProduct(const ByteMatrix& weights, const float* bias, const uint8_t* x,
                 std::span<const RowCode> rows, float* y) {
  // Row counts 1 to kRows.
  static constexpr auto kBlocks = []<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array<BlockFunction, kRows>{&Block<kIndex + 1>...};
  }
  (std::make_index_sequence<kRows>());
  const size_t in = weights.in();
  const size_t out = weights.out();
  // A panel stays in the cache while all rows pass.
  for (size_t at = 0; at < out; at += ByteMatrix::kPanel) {
    const Columns columns{weights.panel(at / ByteMatrix::kPanel), weights.scales() + at,
                          weights.sums() + at, bias + at};
    for (size_t r = 0; r < rows.size(); r += kRows) {
      const BlockFunction block = kBlocks[std::min(kRows, rows.size() - r) - 1];
      block(columns, x + r * in, &rows[r], in, out, y + r * out + at);
    }
  }
}

#else

bool HasByteProduct() { return false; }

void ByteProduct(const ByteMatrix& weights, const float* bias, const uint8_t* x,
                 std::span<const RowCode> rows, float* y) {
  PlainByteProduct(weights, bias, x, rows, y);
}

#endif

}  // namespace inferscale
