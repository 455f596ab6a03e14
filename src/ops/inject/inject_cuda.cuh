// The body of inject on CUDA, for device and host (contract: inject.h).
#ifndef INFERSCALE_OPS_INJECT_INJECT_CUDA_CUH_
#define INFERSCALE_OPS_INJECT_INJECT_CUDA_CUH_

#include "ops/cuda/transfer.cuh"

namespace inferscale::cuda {

template <Dtype kRecord, Dtype kCache, int kDim, bool kInterleaved>
INFERSCALE_DEVICE void InjectBody(const TransferParams& params) {
  constexpr int kUnroll = LaneMap<kDim>::kUnroll;
  constexpr size_t kRecordSize = DtypeSize(kRecord), kCacheSize = DtypeSize(kCache);
  LaneWork work;
  if (!FindWork<kDim>(params, work)) return;
  const PluginCache& cache = params.cache;
  const Rotation rotation = FindRotation<kInterleaved>(params, work);
  const auto from = RecordRows<kRecord, kDim>(params, work);
  const auto to = CacheRows(params, work);
  const uint32_t v_a = work.unit * 8, v_b = kDim / 2 + v_a;
  const uint64_t policy = ReadOncePolicy();
  const uint32_t step = params.heads_at_once;

  for (uint32_t first = work.head; first < cache.heads; first += step * kUnroll) {
    Pack8<kRecord> ka[kUnroll], kb[kUnroll], va[kUnroll], vb[kUnroll];
    INFERSCALE_UNROLL
    for (int u = 0; u < kUnroll; ++u) {  // every load before the first use
      const uint32_t head = first + static_cast<uint32_t>(u) * step;
      if (head >= cache.heads) break;
      const std::byte* k = from.k + head * from.k_head;
      const std::byte* v = from.v + head * from.v_head;
      ka[u].Load(k + rotation.a * kRecordSize, policy);
      kb[u].Load(k + rotation.b * kRecordSize, policy);
      va[u].Load(v + v_a * kRecordSize, policy);
      vb[u].Load(v + v_b * kRecordSize, policy);
    }
    INFERSCALE_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const uint32_t head = first + static_cast<uint32_t>(u) * step;
      if (head >= cache.heads) break;
      MoveKey<kCache, kInterleaved>(
          rotation, ka[u], kb[u], RecordKeyScale<kRecord, kDim>(params, work, head),
          CacheScale<kCache>(cache, cache.k_scale, work.layer, head), to.k + head * to.k_head);
      const auto to_scale = CacheScale<kCache>(cache, cache.v_scale, work.layer, head);
      std::byte* v = to.v + head * to.v_head;
      const auto store = [&](auto from_scale) {
        MoveValue<kCache>(va[u], from_scale, to_scale).Store(v + v_a * kCacheSize);
        MoveValue<kCache>(vb[u], from_scale, to_scale).Store(v + v_b * kCacheSize);
      };
      if constexpr (IsQuantised(kRecord)) {
        store(OneScale{*RecordValueScale<kDim>(params, work, head)});
      } else {
        store(NoScale{});
      }
    }
  }
}

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_INJECT_INJECT_CUDA_CUH_
