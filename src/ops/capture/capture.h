// capture: reads KV out of an engine's cache into FactKv, keys with their rotation taken off. The
// inverse of inject:
//
//   K_record[l][t][h] = R_l(position + t)^-1 K_cache[l][slot(t)][h]   (1/m^2 included for YaRN)
//   V_record[l][t][h] = V_cache[l][slot(t)][h]
//
// computed in float, rounded once to the record's dtype.
#ifndef INFERSCALE_OPS_CAPTURE_CAPTURE_H_
#define INFERSCALE_OPS_CAPTURE_CAPTURE_H_

#include <span>

#include "base/result.h"
#include "kv/fact_kv.h"
#include "ops/cache_layout.h"
#include "ops/inject/inject.h"

namespace inferscale {

struct CaptureSpan {
  MutableFactKvView record;
  CacheSpan span;
};

// Errors and promises as of Inject, and kInvalid for a quantised record: capture to another dtype
// and Quantise (ops/codec) that. The cache is only read.
Status Capture(std::span<const CaptureSpan> spans, const RopeTables& ropes,
               const CacheLayout& cache, int threads = 1);

Status CaptureReference(std::span<const CaptureSpan> spans, const RopeTables& ropes,
                        const CacheLayout& cache);

}  // namespace inferscale

#endif  // INFERSCALE_OPS_CAPTURE_CAPTURE_H_
