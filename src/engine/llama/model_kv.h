// What a model keeps of every token, and in which of llama.cpp's caches.
#ifndef INFERSCALE_ENGINE_LLAMA_MODEL_KV_H_
#define INFERSCALE_ENGINE_LLAMA_MODEL_KV_H_

#include <cstdint>
#include <vector>

#include "kv/rope.h"
#include "kv/shape.h"

namespace inferscale {

struct ModelKv {
  KvShape shape;  // of all layers, f16
  LayerRopes ropes;
  // The layers of every cache, ascending. There is one cache; in a model with sliding windows there
  // are two, that of the layers that see everything and that of the layers with a window.
  std::vector<std::vector<uint32_t>> caches;
  // The token at position p sees positions p - window + 1 to p in the second cache. 0: no windows.
  uint32_t window = 0;

  // The first position that the token at `position` sees in `cache`.
  int32_t FirstSeen(size_t cache, int32_t position) const {
    const auto size = static_cast<int32_t>(window);
    return cache == 0 || position < size ? 0 : position - size + 1;
  }
  KvShape ShapeOf(size_t cache, Dtype dtype) const {
    KvShape part = shape;
    part.layers = static_cast<uint32_t>(caches[cache].size());
    part.dtype = dtype;
    return part;
  }
  // `bases`, one for each layer of `cache`, at those layers' places among all; null elsewhere.
  std::vector<std::byte*> Place(size_t cache, const std::vector<std::byte*>& bases) const {
    std::vector<std::byte*> all(shape.layers, nullptr);
    for (size_t i = 0; i < bases.size(); ++i) all[caches[cache][i]] = bases[i];
    return all;
  }
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_MODEL_KV_H_
