// One element of a tensor, read and written the slow and obvious way: for references and tests.
#ifndef INFERSCALE_OPS_ELEMENT_H_
#define INFERSCALE_OPS_ELEMENT_H_

#include <cstddef>
#include <cstdint>

#include "kv/shape.h"

namespace inferscale {

// The element `index` of an array of `dtype` at `data`, which need not be aligned. Quantised
// elements are as they lie there, without their scale.
double ReadElement(const std::byte* data, Dtype dtype, size_t index);

// Rounds `value` once, to nearest with ties to even. Too large a value becomes infinite, or the
// largest that a quantised dtype has.
void WriteElement(std::byte* data, Dtype dtype, size_t index, double value);

}  // namespace inferscale

#endif  // INFERSCALE_OPS_ELEMENT_H_
