#include <cmath>
#include <cstring>

#include "kv/element_bits.h"
#include "ops/codec/check.h"
#include "ops/codec/codec.h"
#include "ops/element.h"

namespace inferscale {

namespace {

float Quotient(float value, float scale) { return scale == 0 ? 0 : value / scale; }

float RowScale(const FactKvView& from, uint32_t layer, uint32_t token, uint32_t head, float limit) {
  float largest = 0;
  for (uint32_t d = 0; d < from.shape.v_dim; ++d) {
    const auto value = std::abs(static_cast<float>(ReadV(from, layer, token, head, d)));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  return largest / limit;
}

}  // namespace

Result<uint64_t> QuantiseReference(const FactKvView& from, const MutableFactKvView& to) {
  INFERSCALE_TRY(CheckCodec(from, to));
  const KvShape& shape = to.shape;
  const float limit = shape.dtype == Dtype::kI8 ? kI8Max : kF8Max;
  uint64_t clamped = 0;
  for (uint32_t l = 0; l < shape.layers; ++l) {
    for (uint32_t t = 0; t < to.tokens; ++t) {
      for (uint32_t h = 0; h < shape.kv_heads; ++h) {
        const size_t row = size_t{t} * shape.kv_heads + h;
        for (uint32_t d = 0; d < shape.k_dim; ++d) {
          const float q = Quotient(static_cast<float>(ReadK(from, l, t, h, d)),
                                   to.KeyScales(l)[size_t{h} * shape.k_dim + d]);
          if (std::abs(q) > limit) ++clamped;
          WriteElement(to.K(l), shape.dtype, row * shape.k_dim + d, q);
        }
        const float scale = RowScale(from, l, t, h, limit);
        std::memcpy(to.VScales(l) + row * sizeof(float), &scale, sizeof(float));
        for (uint32_t d = 0; d < shape.v_dim; ++d) {
          WriteElement(to.V(l), shape.dtype, row * shape.v_dim + d,
                       Quotient(static_cast<float>(ReadV(from, l, t, h, d)), scale));
        }
      }
    }
  }
  return clamped;
}

Status DequantiseReference(const FactKvView& from, const MutableFactKvView& to) {
  INFERSCALE_TRY(CheckCodec(to, from));
  const KvShape& shape = to.shape;
  for (uint32_t l = 0; l < shape.layers; ++l) {
    for (uint32_t t = 0; t < to.tokens; ++t) {
      for (uint32_t h = 0; h < shape.kv_heads; ++h) {
        const size_t row = size_t{t} * shape.kv_heads + h;
        for (uint32_t d = 0; d < shape.k_dim; ++d) {
          WriteElement(to.K(l), shape.dtype, row * shape.k_dim + d,
                       static_cast<float>(ReadK(from, l, t, h, d)));
        }
        for (uint32_t d = 0; d < shape.v_dim; ++d) {
          WriteElement(to.V(l), shape.dtype, row * shape.v_dim + d,
                       static_cast<float>(ReadV(from, l, t, h, d)));
        }
      }
    }
  }
  return {};
}

}  // namespace inferscale
