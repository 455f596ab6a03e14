// codec: FactKv to quantised elements (i8, f8e4m3) and back.
//
//   v_scale[l][t][h]  = max |V[l][t][h][.]| / limit           limit: 127 for i8, 448 for f8e4m3
//   V_q[l][t][h][d]   = round(V[l][t][h][d] / v_scale[l][t][h])
//   K_q[l][t][h][d]   = round(K[l][t][h][d] / key_scales[l][h][d])
//
// All in float, divisions included, so that every implementation gives the same bytes. round() is
// to the nearest element, ties to even, and clamps to +-limit. A scale of 0 makes zeros. Infinities
// and NaNs don't count in the maximum; infinities are clamped, a NaN is 0 in i8 and stays one in
// f8e4m3.
//
// Why keys differ from values: a few channels of a model's keys are far larger than the others, the
// same ones for every token. So a scale for each channel fits, and takes no room in a record.
#ifndef INFERSCALE_OPS_CODEC_CODEC_H_
#define INFERSCALE_OPS_CODEC_CODEC_H_

#include <cstdint>
#include <span>

#include "base/result.h"
#include "kv/fact_kv.h"

namespace inferscale {

// Fills `to`, whose key_scales are given, from a record of the same tokens that is not quantised.
// Returns how many elements of keys were larger than their scale can express, i.e.
// |K / key_scale| > limit. kInvalid if shapes or dtypes don't fit; then nothing was written.
Result<uint64_t> Quantise(const FactKvView& from, const MutableFactKvView& to);
Result<uint64_t> QuantiseReference(const FactKvView& from, const MutableFactKvView& to);

// The way back: each element times its scale in float, rounded to the dtype of `to`. Errors
// likewise.
Status Dequantise(const FactKvView& from, const MutableFactKvView& to);
Status DequantiseReference(const FactKvView& from, const MutableFactKvView& to);

// Raises maxima[layer][head][dim] to the largest finite |K| of a record that is not quantised.
Status GrowKeyMaxima(const FactKvView& record, std::span<float> maxima);

}  // namespace inferscale

#endif  // INFERSCALE_OPS_CODEC_CODEC_H_
