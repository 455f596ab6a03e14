// What a model's KV looks like, and how a fact's KV lies in memory.
#ifndef INFERSCALE_KV_SHAPE_H_
#define INFERSCALE_KV_SHAPE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kv/dtype.h"

namespace inferscale {

using Token = int32_t;  // An id in the model's vocabulary.

std::string_view DtypeName(Dtype dtype);          // "f32", "f16", "bf16", "i8", "f8e4m3"
Result<Dtype> ParseDtype(std::string_view name);  // kInvalid, naming the input

// The KV of one token in all layers. Every layer has the same number of heads and dims; models for
// which that is not so are refused by the engine.
struct KvShape {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t k_dim = 0;  // per head
  uint32_t v_dim = 0;  // per head
  Dtype dtype = Dtype::kF16;

  bool operator==(const KvShape&) const = default;

  size_t KRowBytes() const { return size_t{kv_heads} * k_dim * DtypeSize(dtype); }
  size_t VRowBytes() const { return size_t{kv_heads} * v_dim * DtypeSize(dtype); }
  // One scale for each head's value; keys share theirs, which are not here.
  size_t VScaleRowBytes() const { return IsQuantised(dtype) ? kv_heads * sizeof(float) : 0; }
  size_t TokenBytes() const { return layers * (KRowBytes() + VRowBytes() + VScaleRowBytes()); }
  // Floats in a model's key scales: [layer][head][dim].
  size_t KeyScales() const { return size_t{layers} * kv_heads * k_dim; }

  // kInvalid unless all counts are positive, dims are at most 1024, heads and layers at most 4096.
  Status Validate() const;
  std::string ToString() const;  // "30 layers x 3 heads x 64/64 f16"
};

}  // namespace inferscale

#endif  // INFERSCALE_KV_SHAPE_H_
