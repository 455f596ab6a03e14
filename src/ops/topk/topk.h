// topk: exact inner-product search over one scope's vectors.
//
//   score(r) = sum_d query[d] * rows[r][d], in float; the k largest, ties by smaller row.
//
// Equal rows have equal scores. A row whose score is not a number is never returned.
#ifndef INFERSCALE_OPS_TOPK_TOPK_H_
#define INFERSCALE_OPS_TOPK_TOPK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/shape.h"

namespace inferscale {

struct VectorRows {
  const std::byte* data = nullptr;  // [count][dims] of `dtype`, contiguous, any alignment
  size_t count = 0;
  uint32_t dims = 0;
  Dtype dtype = Dtype::kF16;  // or kF32, kBF16
};

struct Scored {
  uint32_t row = 0;
  float score = 0.0F;
  bool operator==(const Scored&) const = default;
};

// At most k rows, best first. `allowed`, if not empty, is a bitmap of (count + 63) / 64 words: row
// r takes part iff bit r % 64 of word r / 64 is set. `query` has rows.dims values.
std::vector<Scored> TopK(const VectorRows& rows, std::span<const float> query, size_t k,
                         std::span<const uint64_t> allowed = {});

// Scalar, in double, by sorting everything: the oracle.
std::vector<Scored> TopKReference(const VectorRows& rows, std::span<const float> query, size_t k,
                                  std::span<const uint64_t> allowed = {});

}  // namespace inferscale

#endif  // INFERSCALE_OPS_TOPK_TOPK_H_
