#include "ops/topk/score_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/topk/score_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace inferscale {
namespace HWY_NAMESPACE {

// Four rows at once: the query is loaded once for all, and four streams hide memory's latency.
template <Dtype kType>
void ScoreFour(const std::byte* const (&row)[4], const float* query, size_t dims, float* scores) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= dims; i += lanes) {
    const auto q = hn::LoadU(d, query + i);
    const size_t at = i * DtypeSize(kType);
    sum0 = hn::MulAdd(q, LoadFloat<kType>(d, row[0] + at), sum0);
    sum1 = hn::MulAdd(q, LoadFloat<kType>(d, row[1] + at), sum1);
    sum2 = hn::MulAdd(q, LoadFloat<kType>(d, row[2] + at), sum2);
    sum3 = hn::MulAdd(q, LoadFloat<kType>(d, row[3] + at), sum3);
  }
  if (i < dims) {
    const size_t rest = dims - i;
    const size_t at = i * DtypeSize(kType);
    const auto q = LoadFloatN(d, query + i, rest);
    sum0 = hn::MulAdd(q, LoadFloatN<kType>(d, row[0] + at, rest), sum0);
    sum1 = hn::MulAdd(q, LoadFloatN<kType>(d, row[1] + at, rest), sum1);
    sum2 = hn::MulAdd(q, LoadFloatN<kType>(d, row[2] + at, rest), sum2);
    sum3 = hn::MulAdd(q, LoadFloatN<kType>(d, row[3] + at, rest), sum3);
  }
  scores[0] = hn::GetLane(hn::SumOfLanes(d, sum0));
  scores[1] = hn::GetLane(hn::SumOfLanes(d, sum1));
  scores[2] = hn::GetLane(hn::SumOfLanes(d, sum2));
  scores[3] = hn::GetLane(hn::SumOfLanes(d, sum3));
}

template <Dtype kType>
void Score(const VectorRows& rows, const float* query, std::span<const uint32_t> chosen,
           float* scores) {
  const size_t row_bytes = rows.dims * DtypeSize(kType);
  for (size_t i = 0; i < chosen.size(); i += 4) {
    const size_t count = std::min<size_t>(4, chosen.size() - i);
    const std::byte* row[4];
    for (size_t j = 0; j < 4; ++j) {
      row[j] = rows.data + chosen[i + std::min(j, count - 1)] * row_bytes;
    }
    float four[4];
    ScoreFour<kType>(row, query, rows.dims, four);
    std::copy_n(four, count, scores + i);
  }
}

void ScoreRowsImpl(const VectorRows& rows, const float* query, std::span<const uint32_t> chosen,
                   float* scores) {
  switch (rows.dtype) {
    case Dtype::kF32:
      return Score<Dtype::kF32>(rows, query, chosen, scores);
    case Dtype::kF16:
      return Score<Dtype::kF16>(rows, query, chosen, scores);
    case Dtype::kBF16:
      return Score<Dtype::kBF16>(rows, query, chosen, scores);
    case Dtype::kI8:
    case Dtype::kF8E4M3:
      break;  // no vectors of these
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace inferscale
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inferscale {

HWY_EXPORT(ScoreRowsImpl);

void ScoreRows(const VectorRows& rows, std::span<const float> query,
               std::span<const uint32_t> chosen, float* scores) {
  HWY_DYNAMIC_DISPATCH(ScoreRowsImpl)(rows, query.data(), chosen, scores);
}

}  // namespace inferscale
#endif  // HWY_ONCE
