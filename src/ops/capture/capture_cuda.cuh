// The body of capture on CUDA, for device and host (contracts: capture.h, and codec.h where the
// record is quantised).
#ifndef INFERSCALE_OPS_CAPTURE_CAPTURE_CUDA_CUH_
#define INFERSCALE_OPS_CAPTURE_CAPTURE_CUDA_CUH_

#include "ops/cuda/transfer.cuh"

namespace inferscale::cuda {

// What undoes a rotation by (cos, sin), with YaRN's magnitude: the same floats as on the CPU.
INFERSCALE_DEVICE void Invert(Rotation& rotation) {
  INFERSCALE_UNROLL
  for (int i = 0; i < 8; ++i) {
    const float square =
        Add(Multiply(rotation.cos[i], rotation.cos[i]), Multiply(rotation.sin[i], rotation.sin[i]));
    const float scale = Divide(1.0F, square);
    rotation.cos[i] = Multiply(rotation.cos[i], scale);
    rotation.sin[i] = Multiply(-rotation.sin[i], scale);
  }
}

// The largest finite magnitude among eight elements.
template <Dtype kDtype, class Scale>
INFERSCALE_DEVICE float LargestOf(const Pack8<kDtype>& pack, Scale scale) {
  Float2 x[4];
  Unpack(pack, x);
  scale.Apply(x, 0);
  float largest = 0.0F;
  const auto see = [&](float value) {
    const float size = value < 0.0F ? -value : value;
    if (size > largest && size <= 3.4028235e38F) largest = size;  // never NaN, nor infinite
  };
  INFERSCALE_UNROLL
  for (int i = 0; i < 4; ++i) see(x[i].x), see(x[i].y);
  return largest;
}

// The largest of `value` among the lanes of a head. All lanes of the warp take part.
template <int kLanesPerHead>
INFERSCALE_DEVICE float LargestOfHead(float value) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t first = lane / kLanesPerHead * kLanesPerHead;
  float largest = value;
  INFERSCALE_UNROLL
  for (uint32_t i = 1; i < kLanesPerHead; ++i) {
    const uint32_t other = first + (lane - first + i) % kLanesPerHead;
    const float seen = Shuffle(value, other < kWarpLanes ? other : lane);  // the rest have no head
    if (seen > largest) largest = seen;
  }
  return largest;
}

template <Dtype kCache, Dtype kRecord, int kDim, bool kInterleaved>
INFERSCALE_DEVICE void CaptureBody(const TransferParams& params) {
  constexpr size_t kRecordSize = DtypeSize(kRecord), kCacheSize = DtypeSize(kCache);
  LaneWork work;
  const bool works = FindWork<kDim>(params, work);
  // A quantised head's lanes ask each other for its scale, and a warp asks together.
  if (!IsQuantised(kRecord) && !works) return;
  const PluginCache& cache = params.cache;
  Rotation rotation;
  Rows from = {}, to = {};
  if (works) {
    from = CacheRows(params, work);
    to = RecordRows<kRecord, kDim>(params, work);
    rotation = FindRotation<kInterleaved>(params, work);
    if (rotation.rotated) Invert(rotation);
  }
  const uint32_t v_a = work.unit * 8, v_b = kDim / 2 + v_a;
  const uint64_t policy = ReadOncePolicy();

  for (uint32_t item = 0; item < kItems; ++item) {
    const bool active = works && item < work.items;
    if (!IsQuantised(kRecord) && !active) return;
    Pack8<kCache> ka = {}, kb = {}, va = {}, vb = {};
    if (active) {
      ka.Load(from.k + rotation.a * kCacheSize, policy);
      kb.Load(from.k + rotation.b * kCacheSize, policy);
      va.Load(from.v + v_a * kCacheSize, policy);
      vb.Load(from.v + v_b * kCacheSize, policy);
    }
    const auto from_scale = CacheScale<kCache>(cache, cache.v_scale, work, active ? item : 0);
    const auto store = [&](auto to_scale) {
      MoveValue<kRecord>(va, from_scale, to_scale).Store(to.v + v_a * kRecordSize);
      MoveValue<kRecord>(vb, from_scale, to_scale).Store(to.v + v_b * kRecordSize);
    };
    if constexpr (IsQuantised(kRecord)) {
      const float a = LargestOf(va, from_scale), b = LargestOf(vb, from_scale);
      const float largest = LargestOfHead<LaneMap<kDim>::kLanesPerHead>(a > b ? a : b);
      const float scale = Divide(largest, kRecord == Dtype::kI8 ? 127.0F : 448.0F);
      if (!active) continue;
      if (work.unit == 0) *RecordValueScale<kDim>(params, work, item) = scale;
      store(OneScale(scale));
    } else {
      store(NoScale{});
    }
    MoveKey<kRecord, kInterleaved>(
        rotation, ka, kb, CacheScale<kCache>(cache, cache.k_scale, work, item),
        RecordKeyScale<kRecord, kDim>(params, work, rotation, item), to.k);
    from.k += from.k_step;
    from.v += from.v_step;
    to.k += to.k_step;
    to.v += to.v_step;
  }
}

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_CAPTURE_CAPTURE_CUDA_CUH_
