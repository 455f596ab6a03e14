// The inner loop of topk: inner products of chosen rows with one query. Internal to ops.
#ifndef INFERSCALE_OPS_TOPK_SCORE_ROWS_H_
#define INFERSCALE_OPS_TOPK_SCORE_ROWS_H_

#include <cstdint>
#include <span>

#include "ops/topk/topk.h"

namespace inferscale {

// scores[i] = inner product of `query` with row chosen[i]. Every row is summed in the same order,
// so equal rows have equal scores.
void ScoreRows(const VectorRows& rows, std::span<const float> query,
               std::span<const uint32_t> chosen, float* scores);

}  // namespace inferscale

#endif  // INFERSCALE_OPS_TOPK_SCORE_ROWS_H_
