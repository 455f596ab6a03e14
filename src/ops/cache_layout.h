// Where an engine's KV cache lies in memory, as base pointers and strides. The same description
// serves a llama.cpp state blob (one row per token), a paged cache in any order of its dims and a
// plain tensor; layouts are never named.
#ifndef INFERSCALE_OPS_CACHE_LAYOUT_H_
#define INFERSCALE_OPS_CACHE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kv/shape.h"

namespace inferscale {

// Strides of the K or the V half of the cache, in bytes. A head's dims are contiguous.
struct CacheStrides {
  int64_t page = 0;   // between pages; unused when page_tokens is 0
  int64_t token = 0;  // between tokens of a page
  int64_t head = 0;   // between heads of a token
};

// The element (layer l, slot s, head h, dim d) of K is at
//   k_base[l] + (s / page_tokens) * k.page + (s % page_tokens) * k.token + h * k.head + d * size
// and V likewise. With page_tokens = 0 the cache is one page of any length.
struct CacheLayout {
  // One per layer. Null in both: the layer is elsewhere, and nothing is moved.
  std::span<std::byte* const> k_base;
  std::span<std::byte* const> v_base;
  CacheStrides k;
  CacheStrides v;
  uint32_t page_tokens = 0;
  Dtype dtype = Dtype::kF16;
};

// A run of tokens of one record and where they go in (or come from) the cache.
struct CacheSpan {
  uint32_t record_token = 0;  // first token inside the FactKv record
  uint32_t tokens = 0;
  int32_t position = 0;            // RoPE position of the first token; the next have +1, +2, ...
  int64_t first_slot = 0;          // slots first_slot, first_slot + 1, ... unless `slots` is given
  std::span<const int64_t> slots;  // one per token, or empty
};

}  // namespace inferscale

#endif  // INFERSCALE_OPS_CACHE_LAYOUT_H_
