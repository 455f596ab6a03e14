// One element of a tensor, read and written the slow and obvious way: for references and tests.
#ifndef INFERSCALE_OPS_ELEMENT_H_
#define INFERSCALE_OPS_ELEMENT_H_

#include <cstddef>
#include <cstdint>

#include "kv/fact_kv.h"

namespace inferscale {

// The element `index` of an array of `dtype` at `data`, which need not be aligned. Quantised
// elements are as they lie there, without their scale.
double ReadElement(const std::byte* data, Dtype dtype, size_t index);

// Rounds `value` once, to nearest with ties to even. Too large a value becomes infinite, or the
// largest that a quantised dtype has.
void WriteElement(std::byte* data, Dtype dtype, size_t index, double value);

// One number of a record, with its scale if it is quantised.
double ReadK(const FactKvView& record, uint32_t layer, size_t token, uint32_t head, uint32_t dim);
double ReadV(const FactKvView& record, uint32_t layer, size_t token, uint32_t head, uint32_t dim);
// The scale of a value's row, if the record is quantised.
float ReadVScale(const FactKvView& record, uint32_t layer, size_t token, uint32_t head);

}  // namespace inferscale

#endif  // INFERSCALE_OPS_ELEMENT_H_
