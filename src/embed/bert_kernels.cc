#include "embed/bert_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "embed/bert_kernels.cc"
// This order matters.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace inferscale {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most a panel's half, so that two vectors never exceed it.
using Tag = hn::CappedTag<float, kBertPanel / 2>;
using Vec = hn::Vec<Tag>;

// As many rows as keep their sums in registers: 24 of 32, or 8 of 16.
constexpr size_t kRows = hn::MaxLanes(Tag()) >= kBertPanel / 2 ? 12 : 4;

// x / (1 + exp(-2u)) = x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3).
HWY_INLINE Vec Gelu(Tag d, Vec x) {
  const Vec cube = hn::Mul(hn::Mul(x, x), x);
  const Vec inner = hn::MulAdd(cube, hn::Set(d, 0.044715F), x);
  // Exp is not defined above 104; exp(80) makes the quotient as good as zero.
  const Vec power =
      hn::Exp(d, hn::Min(hn::Mul(inner, hn::Set(d, -1.5957691216F)), hn::Set(d, 80.0F)));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0F), power));
}

// kCount rows times two vectors of columns of one panel.
template <size_t kCount>
HWY_INLINE void Block(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT bias,
                      const float* HWY_RESTRICT x, size_t in, size_t out, BertActivation activation,
                      float* HWY_RESTRICT y) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  Vec low[kCount];
  Vec high[kCount];
#pragma GCC unroll 12
  for (size_t r = 0; r < kCount; ++r) {
    low[r] = hn::LoadU(d, bias);
    high[r] = hn::LoadU(d, bias + lanes);
  }
  for (size_t k = 0; k < in; ++k) {
    const Vec w_low = hn::LoadU(d, weights + k * kBertPanel);
    const Vec w_high = hn::LoadU(d, weights + k * kBertPanel + lanes);
    // The next panel, to the L2 cache: a single text uses each weight too rarely to hide its way.
    __builtin_prefetch(weights + (k + in) * kBertPanel, 0, 2);
    __builtin_prefetch(weights + (k + in) * kBertPanel + kBertPanel / 2, 0, 2);
#pragma GCC unroll 12
    for (size_t r = 0; r < kCount; ++r) {
      const Vec value = hn::Set(d, x[r * in + k]);
      low[r] = hn::MulAdd(value, w_low, low[r]);
      high[r] = hn::MulAdd(value, w_high, high[r]);
    }
  }
#pragma GCC unroll 12
  for (size_t r = 0; r < kCount; ++r) {
    if (activation == BertActivation::kGelu) {
      low[r] = Gelu(d, low[r]);
      high[r] = Gelu(d, high[r]);
    }
    hn::StoreU(low[r], d, y + r * out);
    hn::StoreU(high[r], d, y + r * out + lanes);
  }
}

using BlockFunction = void (*)(const float*, const float*, const float*, size_t, size_t,
                               BertActivation, float*);

void ApplyLinearImpl(const BertLinear& linear, const float* x, size_t rows,
                     BertActivation activation, float* y) {
  // Row counts 1 to kRows.
  static constexpr auto kBlocks = []<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array<BlockFunction, kRows>{&Block<kIndex + 1>...};
  }
  (std::make_index_sequence<kRows>());
  const size_t in = linear.in();
  const size_t out = linear.out();
  const size_t step = 2 * hn::Lanes(Tag());
  // A panel stays in the L2 cache while all rows pass.
  for (size_t column = 0; column < out; column += kBertPanel) {
    const float* panel = linear.panel(column / kBertPanel);
    for (size_t row = 0; row < rows; row += kRows) {
      const BlockFunction block = kBlocks[std::min(kRows, rows - row) - 1];
      for (size_t part = 0; part < kBertPanel; part += step) {
        block(panel + part, linear.bias() + column + part, x + row * in, in, out, activation,
              y + row * out + column + part);
      }
    }
  }
}

RowCode CodeRow(const float* HWY_RESTRICT x, size_t in, uint8_t* HWY_RESTRICT codes) {
  const Tag d;
  const hn::Rebind<uint8_t, Tag> bytes;
  const size_t lanes = hn::Lanes(d);
  Vec low = hn::Zero(d);  // so that zero has a code of its own
  Vec high = hn::Zero(d);
  for (size_t i = 0; i < in; i += lanes) {
    low = hn::Min(low, hn::LoadU(d, x + i));
    high = hn::Max(high, hn::LoadU(d, x + i));
  }
  const float least = hn::GetLane(hn::MinOfLanes(d, low));
  const float range = hn::GetLane(hn::MaxOfLanes(d, high)) - least;
  const float inverse = range > 0 ? 255 / range : 0;
  const float zero = std::nearbyint(-least * inverse);
  for (size_t i = 0; i < in; i += lanes) {
    const Vec code = hn::MulAdd(hn::LoadU(d, x + i), hn::Set(d, inverse), hn::Set(d, zero));
    hn::StoreU(hn::DemoteTo(bytes, hn::NearestInt(code)), bytes, codes + i);
  }
  return {range / 255, static_cast<int32_t>(zero)};
}

void ApplyBytesImpl(const BertLinear& linear, const float* x, size_t rows,
                    BertActivation activation, float* y) {
  const size_t in = linear.in();
  const auto codes = MakeAligned<uint8_t>(rows * in);
  std::vector<RowCode> row_codes(rows);
  for (size_t row = 0; row < rows; ++row) {
    row_codes[row] = CodeRow(x + row * in, in, codes.get() + row * in);
  }
  ByteProduct(linear.bytes(), linear.bias(), codes.get(), row_codes, y);
  const Tag d;
  for (size_t i = 0; activation == BertActivation::kGelu && i < rows * linear.out();
       i += hn::Lanes(d)) {
    hn::StoreU(Gelu(d, hn::LoadU(d, y + i)), d, y + i);
  }
}

void AddAndNormImpl(float* x, const float* add, size_t rows, std::span<const float> gain,
                    std::span<const float> bias, float epsilon) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const size_t dims = gain.size();
  const auto count = static_cast<float>(dims);
  for (size_t row = 0; row < rows; ++row, x += dims, add += dims) {
    Vec sum = hn::Zero(d);
    for (size_t i = 0; i < dims; i += lanes) {
      const Vec value = hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, add + i));
      hn::StoreU(value, d, x + i);
      sum = hn::Add(sum, value);
    }
    const Vec mean = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum)) / count);
    Vec squares = hn::Zero(d);
    for (size_t i = 0; i < dims; i += lanes) {
      const Vec off = hn::Sub(hn::LoadU(d, x + i), mean);
      squares = hn::MulAdd(off, off, squares);
    }
    const float variance = hn::GetLane(hn::SumOfLanes(d, squares)) / count;
    const Vec scale = hn::Set(d, 1.0F / std::sqrt(variance + epsilon));
    for (size_t i = 0; i < dims; i += lanes) {
      const Vec unit = hn::Mul(hn::Sub(hn::LoadU(d, x + i), mean), scale);
      hn::StoreU(hn::MulAdd(unit, hn::LoadU(d, gain.data() + i), hn::LoadU(d, bias.data() + i)), d,
                 x + i);
    }
  }
}

// exp(x - max) in place; returns the sum. `padded` is a multiple of the lanes, and what lies beyond
// `count` becomes zero.
float Exponentials(float* scores, size_t count, size_t padded) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const Vec max = hn::Set(d, *std::max_element(scores, scores + count));
  std::fill(scores + count, scores + padded, -HUGE_VALF);
  Vec sum = hn::Zero(d);
  for (size_t i = 0; i < padded; i += lanes) {
    const Vec power = hn::Exp(d, hn::Sub(hn::LoadU(d, scores + i), max));
    hn::StoreU(power, d, scores + i);
    sum = hn::Add(sum, power);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void AttendAllImpl(const float* qkv, size_t tokens, size_t heads, size_t head_dim, float* scratch,
                   float* out) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const size_t dims = heads * head_dim;
  const size_t row = 3 * dims;
  const size_t padded = (tokens + kBertPanel - 1) / kBertPanel * kBertPanel;
  float* keys = scratch;  // [head_dim][padded]: lanes are tokens
  float* scores = scratch + head_dim * padded;
  std::fill(keys, scores, 0.0F);
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  for (size_t head = 0; head < heads; ++head) {
    const float* q = qkv + head * head_dim;
    const float* k = q + dims;
    const float* v = k + dims;
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t i = 0; i < head_dim; ++i) keys[i * padded + t] = k[t * row + i] * scale;
    }
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t other = 0; other < tokens; other += lanes) {
        Vec sum = hn::Zero(d);
        for (size_t i = 0; i < head_dim; ++i) {
          sum =
              hn::MulAdd(hn::Set(d, q[t * row + i]), hn::LoadU(d, keys + i * padded + other), sum);
        }
        hn::StoreU(sum, d, scores + other);
      }
      const Vec share = hn::Set(d, 1.0F / Exponentials(scores, tokens, padded));
      for (size_t i = 0; i < head_dim; i += lanes) {
        Vec sum = hn::Zero(d);
        for (size_t other = 0; other < tokens; ++other) {
          sum = hn::MulAdd(hn::Set(d, scores[other]), hn::LoadU(d, v + other * row + i), sum);
        }
        hn::StoreU(hn::Mul(sum, share), d, out + t * dims + head * head_dim + i);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace inferscale
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inferscale {

HWY_EXPORT(ApplyLinearImpl);
HWY_EXPORT(ApplyBytesImpl);
HWY_EXPORT(AddAndNormImpl);
HWY_EXPORT(AttendAllImpl);

BertLinear::BertLinear(std::span<const float> weights, std::span<const float> bias,
                       BertPrecision precision)
    : in_(weights.size() / bias.size()), out_(bias.size()), bias_(MakeAligned<float>(bias.size())) {
  std::copy(bias.begin(), bias.end(), bias_.get());
  if (precision == BertPrecision::kByte) {
    bytes_ = ByteMatrix(weights, out_);
    return;
  }
  packed_ = MakeAligned<float>(weights.size());
  for (size_t o = 0; o < out_; ++o) {
    float* column = packed_.get() + o / kBertPanel * in_ * kBertPanel + o % kBertPanel;
    for (size_t i = 0; i < in_; ++i) column[i * kBertPanel] = weights[o * in_ + i];
  }
}

void ApplyLinear(const BertLinear& linear, const float* x, size_t rows, BertActivation activation,
                 float* y) {
  if (linear.bytes().empty()) {
    HWY_DYNAMIC_DISPATCH(ApplyLinearImpl)(linear, x, rows, activation, y);
  } else {
    HWY_DYNAMIC_DISPATCH(ApplyBytesImpl)(linear, x, rows, activation, y);
  }
}

void AddAndNorm(float* x, const float* add, size_t rows, std::span<const float> gain,
                std::span<const float> bias, float epsilon) {
  HWY_DYNAMIC_DISPATCH(AddAndNormImpl)(x, add, rows, gain, bias, epsilon);
}

void AttendAll(const float* qkv, size_t tokens, size_t heads, size_t head_dim, float* scratch,
               float* out) {
  HWY_DYNAMIC_DISPATCH(AttendAllImpl)(qkv, tokens, heads, head_dim, scratch, out);
}

}  // namespace inferscale
#endif  // HWY_ONCE
