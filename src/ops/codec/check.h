// What the codec's contract promises to refuse. Internal to ops.
#ifndef INFERSCALE_OPS_CODEC_CHECK_H_
#define INFERSCALE_OPS_CODEC_CHECK_H_

#include "base/result.h"
#include "kv/fact_kv.h"

namespace inferscale {

// `plain` and `quantised` are what their names say, hold the same tokens of the same shape, and
// have their data and scales.
Status CheckCodec(const FactKvView& plain, const FactKvView& quantised);

}  // namespace inferscale

#endif  // INFERSCALE_OPS_CODEC_CHECK_H_
