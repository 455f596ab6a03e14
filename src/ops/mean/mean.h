// mean: records of the same tokens, made in different contexts, become one.
#ifndef INFERSCALE_OPS_MEAN_MEAN_H_
#define INFERSCALE_OPS_MEAN_MEAN_H_

#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "kv/dtype.h"

namespace inferscale {

// Makes `mean`, of count - 1 arrays so far, that of `count` arrays, of which `next` is the last:
// each element becomes mean + (next - mean) / count in float, rounded once to the dtype. kInvalid
// if the sizes differ or are no whole elements, count is 0, or the dtype is quantised; then nothing
// was written.
Status AddToMean(Dtype dtype, ByteSpan next, uint32_t count, MutableByteSpan mean);
Status AddToMeanReference(Dtype dtype, ByteSpan next, uint32_t count, MutableByteSpan mean);

}  // namespace inferscale

#endif  // INFERSCALE_OPS_MEAN_MEAN_H_
