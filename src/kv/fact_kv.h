// Views of a fact's KV: keys before RoPE and values, laid out [layer][K, then V][token][head][dim],
// without padding. One record may hold a whole episode; a fact is then a range of its tokens, and
// because attention is causal any prefix of a record is valid by itself.
//
// Quantised elements q (i8, f8e4m3) are followed, after the planes of all layers, by the scales of
// the values, float32 [layer][token][head]:
//
//   V[layer][token][head][dim] = q * v_scale[layer][token][head]
//   K[layer][token][head][dim] = q * key_scales[layer][head][dim]
//
// Keys have large and small channels, the same ones for every token, so their scales belong to the
// model and stand outside of the record.
#ifndef INFERSCALE_KV_FACT_KV_H_
#define INFERSCALE_KV_FACT_KV_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/bytes.h"
#include "kv/shape.h"

namespace inferscale {

// `Byte` is std::byte or const std::byte.
template <typename Byte>
struct BasicFactKv {
  KvShape shape;
  uint32_t tokens = 0;
  Byte* data = nullptr;               // tokens * shape.TokenBytes() bytes; not owned
  const float* key_scales = nullptr;  // [layer][head][dim] if quantised; not owned

  size_t SizeBytes() const { return tokens * shape.TokenBytes(); }
  size_t LayerBytes() const { return tokens * (shape.KRowBytes() + shape.VRowBytes()); }
  // [token][head][dim] of one layer.
  Byte* K(uint32_t layer) const { return data + layer * LayerBytes(); }
  Byte* V(uint32_t layer) const { return K(layer) + tokens * shape.KRowBytes(); }
  // Floats [token][head] of one layer, at any address: read them by memcpy.
  Byte* VScales(uint32_t layer) const {
    return K(shape.layers) + layer * tokens * shape.VScaleRowBytes();
  }
  // [head][dim] of one layer.
  const float* KeyScales(uint32_t layer) const {
    return key_scales + size_t{layer} * shape.kv_heads * shape.k_dim;
  }

  operator BasicFactKv<const std::byte>() const requires(!std::is_const_v<Byte>) {
    return {shape, tokens, data, key_scales};
  }
};

using FactKvView = BasicFactKv<const std::byte>;
using MutableFactKvView = BasicFactKv<std::byte>;

}  // namespace inferscale

#endif  // INFERSCALE_KV_FACT_KV_H_
