// inject: writes FactKv into an engine's cache, keys rotated to their positions.
//
//   for every span, token t, layer l, head h:
//     K_cache[l][slot(t)][h] = R_l(position + t) K_record[l][t][h]
//     V_cache[l][slot(t)][h] = V_record[l][t][h]
//
// Nothing else is written. The rotation is computed in float from RopeTable's values and rounded
// once to the cache's dtype (to nearest, ties to even); where source and cache have the same dtype
// V and unrotated dims are copied bit by bit. Elements of a quantised record are multiplied by
// their scale, in float, before anything else; the cache itself is never quantised.
#ifndef INFERSCALE_OPS_INJECT_INJECT_H_
#define INFERSCALE_OPS_INJECT_INJECT_H_

#include <span>

#include "base/result.h"
#include "kv/fact_kv.h"
#include "kv/rope.h"
#include "ops/cache_layout.h"

namespace inferscale {

struct InjectSpan {
  FactKvView record;
  CacheSpan span;
};

// The RoPE of every layer: tables[layer_table[l]].
struct RopeTables {
  std::span<const RopeTable> tables;
  std::span<const uint8_t> layer_table;
};

// kInvalid if a span leaves its record or the positions that a table knows, counts of layers, heads
// or dims differ between the records, the layout and the tables, a slot is negative, a quantised
// record comes without key scales or the cache is quantised; then nothing was written. Slots must
// lie inside the cache and no two tokens may share one: both are the caller's promise. `threads` >=
// 1 shares the work among that many threads.
Status Inject(std::span<const InjectSpan> spans, const RopeTables& ropes, const CacheLayout& cache,
              int threads = 1);

// The plainest code for the same contract, in double: the oracle of every other implementation.
Status InjectReference(std::span<const InjectSpan> spans, const RopeTables& ropes,
                       const CacheLayout& cache);

}  // namespace inferscale

#endif  // INFERSCALE_OPS_INJECT_INJECT_H_
