// The body of inject on CUDA, for device and host (contract: inject.h).
#ifndef INFERSCALE_OPS_INJECT_INJECT_CUDA_CUH_
#define INFERSCALE_OPS_INJECT_INJECT_CUDA_CUH_

#include "ops/cuda/transfer.cuh"

namespace inferscale::cuda {

template <Dtype kRecord, Dtype kCache, int kDim, bool kInterleaved>
INFERSCALE_DEVICE void InjectBody(const TransferParams& params) {
  constexpr size_t kRecordSize = DtypeSize(kRecord), kCacheSize = DtypeSize(kCache);
  LaneWork work;
  if (!FindWork<kDim>(params, work)) return;
  const PluginCache& cache = params.cache;
  const Rotation rotation = FindRotation<kInterleaved>(params, work);
  const uint32_t v_a = work.unit * 8, v_b = kDim / 2 + v_a;

  Pack8<kRecord> ka[kItems], kb[kItems], va[kItems], vb[kItems];
  [[maybe_unused]] float value_scale[kItems];
  Rows from = RecordRows<kRecord, kDim>(params, work);
  const uint64_t policy = ReadOncePolicy();
  INFERSCALE_UNROLL
  for (uint32_t item = 0; item < kItems; ++item) {  // every load before the first use
    if (item >= work.items) break;
    ka[item].Load(from.k + rotation.a * kRecordSize, policy);
    kb[item].Load(from.k + rotation.b * kRecordSize, policy);
    va[item].Load(from.v + v_a * kRecordSize, policy);
    vb[item].Load(from.v + v_b * kRecordSize, policy);
    if constexpr (IsQuantised(kRecord)) {
      value_scale[item] = *RecordValueScale<kDim>(params, work, item);
    }
    from.k += from.k_step;
    from.v += from.v_step;
  }
  Rows to = CacheRows(params, work);
  INFERSCALE_UNROLL
  for (uint32_t item = 0; item < kItems; ++item) {
    if (item >= work.items) break;
    MoveKey<kCache, kInterleaved>(rotation, ka[item], kb[item],
                                  RecordKeyScale<kRecord, kDim>(params, work, rotation, item),
                                  CacheScale<kCache>(cache, cache.k_scale, work, item), to.k);
    const auto to_scale = CacheScale<kCache>(cache, cache.v_scale, work, item);
    const auto store = [&](auto from_scale) {
      MoveValue<kCache>(va[item], from_scale, to_scale).Store(to.v + v_a * kCacheSize);
      MoveValue<kCache>(vb[item], from_scale, to_scale).Store(to.v + v_b * kCacheSize);
    };
    if constexpr (IsQuantised(kRecord)) {
      store(OneScale(value_scale[item]));
    } else {
      store(NoScale{});
    }
    to.k += to.k_step;
    to.v += to.v_step;
  }
}

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_INJECT_INJECT_CUDA_CUH_
