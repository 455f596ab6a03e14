// Views of a fact's KV: keys before RoPE and values, laid out [layer][K, then V][token][head][dim],
// without padding. One record may hold a whole episode; a fact is then a range of its tokens, and
// because attention is causal any prefix of a record is valid by itself.
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
  Byte* data = nullptr;  // tokens * shape.TokenBytes() bytes; not owned

  size_t SizeBytes() const { return tokens * shape.TokenBytes(); }
  size_t LayerBytes() const { return tokens * (shape.KRowBytes() + shape.VRowBytes()); }
  // [token][head][dim] of one layer.
  Byte* K(uint32_t layer) const { return data + layer * LayerBytes(); }
  Byte* V(uint32_t layer) const { return K(layer) + tokens * shape.KRowBytes(); }

  operator BasicFactKv<const std::byte>() const requires(!std::is_const_v<Byte>) {
    return {shape, tokens, data};
  }
};

using FactKvView = BasicFactKv<const std::byte>;
using MutableFactKvView = BasicFactKv<std::byte>;

}  // namespace inferscale

#endif  // INFERSCALE_KV_FACT_KV_H_
