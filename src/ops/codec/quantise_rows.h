// The inner loops of Quantise, compiled once for each SIMD target. Internal to ops.
#ifndef INFERSCALE_OPS_CODEC_QUANTISE_ROWS_H_
#define INFERSCALE_OPS_CODEC_QUANTISE_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kv/shape.h"

namespace inferscale {

// `rows` rows of `dims` elements, without gaps.
struct QuantiseJob {
  const std::byte* from = nullptr;
  Dtype from_dtype = Dtype::kF16;
  std::byte* to = nullptr;
  Dtype to_dtype = Dtype::kI8;
  size_t rows = 0;
  size_t dims = 0;
};

// All rows have the same scales, one per element. Returns how many elements were clamped.
uint64_t QuantiseByChannel(const QuantiseJob& job, const float* scales);
// Finds each row's own scale and writes it to `scales`, floats at any address.
void QuantiseByRow(const QuantiseJob& job, std::byte* scales);

}  // namespace inferscale

#endif  // INFERSCALE_OPS_CODEC_QUANTISE_ROWS_H_
