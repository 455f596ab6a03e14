// What inject and capture share: checking their arguments, cutting spans into pieces that move
// with one stride, and spreading the pieces over threads. Internal to ops.
#ifndef INFERSCALE_OPS_TRANSFER_H_
#define INFERSCALE_OPS_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kv/fact_kv.h"
#include "ops/cache_layout.h"
#include "ops/inject/inject.h"

namespace inferscale {

// A span with its record, for either direction.
struct TransferSpan {
  FactKvView record;
  std::byte* writable = nullptr;  // record.data again, for capture
  CacheSpan span;
};

// Everything that Inject's and Capture's contracts promise to refuse.
Status CheckTransfer(std::span<const TransferSpan> spans, const RopeTables& ropes,
                     const CacheLayout& cache, int threads);

// Where a token of a span goes.
inline int64_t SlotOf(const CacheSpan& span, uint32_t token) {
  return span.slots.empty() ? span.first_slot + token : span.slots[token];
}

// The byte offset of a slot from a layer's base.
inline int64_t SlotOffset(const CacheLayout& cache, const CacheStrides& strides, int64_t slot) {
  if (cache.page_tokens == 0) return slot * strides.token;
  return slot / cache.page_tokens * strides.page + slot % cache.page_tokens * strides.token;
}

enum class Direction { kInject, kCapture };

// Moves all spans, which passed CheckTransfer.
void Transfer(std::span<const TransferSpan> spans, const RopeTables& ropes,
              const CacheLayout& cache, Direction direction, int threads);

}  // namespace inferscale

#endif  // INFERSCALE_OPS_TRANSFER_H_
