#include <algorithm>
#include <cmath>

#include "ops/element.h"
#include "ops/topk/topk.h"

namespace inferscale {

std::vector<Scored> TopKReference(const VectorRows& rows, std::span<const float> query, size_t k,
                                  std::span<const uint64_t> allowed) {
  struct Exact {
    uint32_t row;
    double score;
  };
  std::vector<Exact> all;
  for (uint32_t row = 0; row < rows.count; ++row) {
    if (!allowed.empty() && (allowed[row / 64] >> (row % 64) & 1) == 0) continue;
    double score = 0;
    for (uint32_t d = 0; d < rows.dims; ++d) {
      score += query[d] * ReadElement(rows.data, rows.dtype, size_t{row} * rows.dims + d);
    }
    if (!std::isnan(score)) all.push_back({row, score});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Exact& a, const Exact& b) { return a.score > b.score; });
  std::vector<Scored> best;
  for (size_t i = 0; i < std::min(k, all.size()); ++i) {
    best.push_back({all[i].row, static_cast<float>(all[i].score)});
  }
  return best;
}

}  // namespace inferscale
