// What the inject and capture kernels share: their arguments, and which thread moves what. A block
// moves a tile of tokens of one span: two heads a lane of one layer, or one head of two layers.
// Neighbouring lanes own one head of one token, each of them sixteen of its elements: eight and the
// eight that rotate with them, so that no lane needs another's data.
#ifndef INFERSCALE_OPS_CUDA_TRANSFER_CUH_
#define INFERSCALE_OPS_CUDA_TRANSFER_CUH_

#include "ops/cuda/pack.h"
#include "ops/cuda/plugin.h"
#include "ops/cuda/portable.h"

namespace inferscale::cuda {

// Few, because facts are short: a block's warps beyond the end of one have nothing to do.
inline constexpr int kWarps = 4;
inline constexpr int kTransferThreads = 32 * kWarps;

// By value in the kernel's arguments, so a launch uploads and allocates nothing and a CUDA graph
// may hold it. Its 9 KB cost 0.5 us more than none on an H200, and 26 KB would 1.9 us.
inline constexpr int kMaxSpans = 144;
inline constexpr int kMaxPages = 1152;

struct KernelSpan {
  std::byte* record;
  uint32_t record_tokens;
  uint32_t first;
  uint32_t tokens;
  int32_t position;
  uint32_t page_token;
  uint32_t first_tile;  // of the launch
};

struct TransferParams {
  PluginCache cache;
  PluginRopes ropes;
  const float* key_scales;
  uint32_t span_count;
  uint32_t heads_at_once;   // of one token, in a warp
  uint32_t tokens_at_once;  // in a warp
  uint32_t layers_at_once;  // in a block: 1, or 2 where a warp takes in all heads at once
  uint32_t head_groups;     // blocks for the heads of a layer
  KernelSpan spans[kMaxSpans];
  int32_t pages[kMaxPages];
};
static_assert(sizeof(TransferParams) <= 9600);

// How heads are laid out over a warp's lanes.
template <int kDim>
struct LaneMap {
  static constexpr int kLanesPerHead = kDim / 16;
  static constexpr int kHeadsPerWarp = 32 / kLanesPerHead;
};

// What a lane moves: sixteen elements of one or two heads of a token. They fly together, and that
// there are no more leaves no address to be kept while they do: registers decide how much can fly.
inline constexpr uint32_t kItems = 2;

struct LaneWork {
  uint32_t items = 0;
  uint32_t layer = 0, layer_step = 0;  // item i is of layer layer + i * layer_step
  uint32_t head = 0, head_step = 0;    // and of head head + i * head_step
  uint32_t token = 0;                  // in the record
  uint32_t unit = 0;                   // which sixteen of a head's elements
  int32_t position = 0;
  int64_t page = 0;  // in the cache
  uint32_t in_page = 0;
  const KernelSpan* span = nullptr;

  uint32_t record_layer = 0, record_layer_step = 0;  // the same of the record

  INFERSCALE_DEVICE uint32_t LayerOf(uint32_t item) const { return layer + item * layer_step; }
  INFERSCALE_DEVICE uint32_t RecordLayerOf(uint32_t item) const {
    return record_layer + item * record_layer_step;
  }
  INFERSCALE_DEVICE uint32_t HeadOf(uint32_t item) const { return head + item * head_step; }
};

INFERSCALE_DEVICE const KernelSpan& FindSpan(const TransferParams& params, uint32_t tile) {
  uint32_t first = 0;
  for (uint32_t count = params.span_count; count > 1;) {
    const uint32_t half = count / 2;
    if (params.spans[first + half].first_tile <= tile) first += half;
    count -= half;
  }
  return params.spans[first];
}

// False if this lane has nothing to do. Blocks of one tile and all layers follow each other, which
// reads a record from beginning to end.
template <int kDim>
INFERSCALE_DEVICE bool FindWork(const TransferParams& params, LaneWork& work) {
  using Map = LaneMap<kDim>;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t group = lane / Map::kLanesPerHead;
  const uint32_t token_of_warp = group / params.heads_at_once;
  work.unit = lane % Map::kLanesPerHead;
  work.layer = blockIdx.x / params.head_groups * params.layers_at_once;
  work.head = group % params.heads_at_once +
              blockIdx.x % params.head_groups * kItems * params.heads_at_once;
  const KernelSpan& span = FindSpan(params, blockIdx.y);
  const uint32_t token =
      ((blockIdx.y - span.first_tile) * kWarps + threadIdx.x / kWarpLanes) * params.tokens_at_once +
      token_of_warp;
  if (group >= Map::kHeadsPerWarp || token_of_warp >= params.tokens_at_once ||
      token >= span.tokens) {
    return false;
  }
  if (params.layers_at_once == 1) {
    if (work.head >= params.cache.heads) return false;
    work.head_step = params.heads_at_once;
    work.items = work.head + work.head_step < params.cache.heads ? 2 : 1;
  } else {
    work.layer_step = 1;
    work.items = work.layer + 1 < params.cache.layers ? 2 : 1;
  }
  work.record_layer = work.layer;
  work.record_layer_step = work.layer_step;
  if (const uint32_t* record_layer = params.cache.record_layer) {
    work.record_layer = record_layer[work.layer];
    // May be a step back, which wraps around and comes out right in 32 bits.
    work.record_layer_step = work.layer_step == 1 && work.items == 2
                                 ? record_layer[work.layer + 1] - work.record_layer
                                 : 0;
  }
  work.token = span.first + token;
  work.position = span.position + static_cast<int32_t>(token);
  const uint32_t slot = span.page_token + token;
  work.page = params.pages[slot / params.cache.page_tokens];
  work.in_page = slot % params.cache.page_tokens;
  work.span = &span;
  return true;
}

// Where a lane's two runs of eight elements are in a head, and their rotation.
struct Rotation {
  uint32_t a = 0;  // first element of the one run
  uint32_t b = 0;  // and of the other
  bool rotated = false;
  float cos[8];
  float sin[8];
};

template <bool kInterleaved>
INFERSCALE_DEVICE Rotation FindRotation(const TransferParams& params, const LaneWork& work) {
  Rotation rotation;
  const PluginRopes& ropes = params.ropes;
  const uint32_t index = ropes.layer_table == nullptr ? 0 : ropes.layer_table[work.layer];
  const uint32_t rotary_dims = ropes.rotary_dims[index];
  const uint32_t rotary_units = rotary_dims / 16;
  rotation.rotated = work.unit < rotary_units;
  rotation.a = work.unit * 16;
  rotation.b = rotation.a + 8;
  if (!rotation.rotated) return rotation;
  if constexpr (!kInterleaved) {
    rotation.a = work.unit * 8;
    rotation.b = rotary_dims / 2 + rotation.a;
  }
  const float* row =
      ropes.table[index] + static_cast<size_t>(work.position) * rotary_dims + work.unit * 8;
  LoadTable8(row, rotation.cos);
  LoadTable8(row + rotary_dims / 2, rotation.sin);
  return rotation;
}

// (x, y) turned by the angle. The products are fused the same way on every machine.
INFERSCALE_DEVICE Float2 Turn(Float2 p, float cos, float sin) {
  return {Fma(p.x, cos, -Multiply(p.y, sin)), Fma(p.y, cos, Multiply(p.x, sin))};
}

// Turns a lane's sixteen floats: pairs (a[i], b[i]), or neighbours.
template <bool kInterleaved>
INFERSCALE_DEVICE void Turn(const Rotation& rotation, Float2 (&a)[4], Float2 (&b)[4]) {
  INFERSCALE_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (kInterleaved) {
      a[i] = Turn(a[i], rotation.cos[i], rotation.sin[i]);
      b[i] = Turn(b[i], rotation.cos[4 + i], rotation.sin[4 + i]);
    } else {
      const Float2 x = Turn(Float2{a[i].x, b[i].x}, rotation.cos[2 * i], rotation.sin[2 * i]);
      const Float2 y =
          Turn(Float2{a[i].y, b[i].y}, rotation.cos[2 * i + 1], rotation.sin[2 * i + 1]);
      a[i] = {x.x, y.x};
      b[i] = {x.y, y.y};
    }
  }
}

// What an element is to be multiplied with to give the number: nothing, one scale for all of a
// head, or one for each of a lane's sixteen elements (the first eight, and the others).
struct NoScale {
  INFERSCALE_DEVICE void Apply(Float2 (&)[4], int) const {}
  INFERSCALE_DEVICE void Remove(Float2 (&)[4], int) const {}
};

// a / b rounded like the division, but quicker where 1 / b is known (Markstein's theorem).
INFERSCALE_DEVICE float Quotient(float a, float b, float inverse) {
  const float near = Multiply(a, inverse);
  const float exact = Fma(Fma(-near, b, a), inverse, near);
  return exact == exact && near != 0.0F ? exact : near;  // infinities, and zeros with their sign
}

// 0 makes zeros.
struct OneScale {
  float scale;
  float inverse;

  INFERSCALE_DEVICE explicit OneScale(float value)
      : scale(value), inverse(value == 0.0F ? 0.0F : Divide(1.0F, value)) {}
  INFERSCALE_DEVICE void Apply(Float2 (&x)[4], int) const {
    INFERSCALE_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = {Multiply(x[i].x, scale), Multiply(x[i].y, scale)};
  }
  INFERSCALE_DEVICE void Remove(Float2 (&x)[4], int) const {
    INFERSCALE_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[i] = {Quotient(x[i].x, scale, inverse), Quotient(x[i].y, scale, inverse)};
    }
  }
};

struct LaneScales {
  float scale[2][8];

  INFERSCALE_DEVICE void Apply(Float2 (&x)[4], int half) const {
    INFERSCALE_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[i] = {Multiply(x[i].x, scale[half][2 * i]), Multiply(x[i].y, scale[half][2 * i + 1])};
    }
  }
  INFERSCALE_DEVICE void Remove(Float2 (&x)[4], int half) const {
    INFERSCALE_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[i] = {DivideByScale(x[i].x, scale[half][2 * i]),
              DivideByScale(x[i].y, scale[half][2 * i + 1])};
    }
  }
  INFERSCALE_DEVICE static float DivideByScale(float value, float by) {
    return by == 0.0F ? 0.0F : Divide(value, by);
  }
};

// The same bits mean the same number on both sides.
template <Dtype kFrom, Dtype kTo>
inline constexpr bool kSameElements = kFrom == kTo && !IsQuantised(kFrom);

template <Dtype kDtype>
INFERSCALE_DEVICE void Unpack(const Pack8<kDtype>& pack, Float2 (&out)[4]) {
  INFERSCALE_UNROLL
  for (int i = 0; i < 4; ++i) out[i] = pack.Pair(i);
}

template <Dtype kDtype>
INFERSCALE_DEVICE Pack8<kDtype> Pack(const Float2 (&x)[4]) {
  Pack8<kDtype> pack;
  INFERSCALE_UNROLL
  for (int i = 0; i < 4; ++i) pack.SetPair(i, x[i]);
  return pack;
}

// Eight elements of a value, with the scale of the one side taken for the other's.
template <Dtype kTo, Dtype kFrom, class FromScale, class ToScale>
INFERSCALE_DEVICE Pack8<kTo> MoveValue(const Pack8<kFrom>& from, FromScale from_scale,
                                       ToScale to_scale) {
  if constexpr (kSameElements<kFrom, kTo>) {
    return from;
  } else {
    Float2 x[4];
    Unpack(from, x);
    from_scale.Apply(x, 0);
    to_scale.Remove(x, 0);
    return Pack<kTo>(x);
  }
}

// A lane's sixteen elements of a key, turned, written to a head's first element at `to`.
template <Dtype kTo, bool kInterleaved, Dtype kFrom, class FromScale, class ToScale>
INFERSCALE_DEVICE void MoveKey(const Rotation& rotation, const Pack8<kFrom>& a,
                               const Pack8<kFrom>& b, FromScale from_scale, ToScale to_scale,
                               std::byte* to) {
  constexpr size_t kSize = DtypeSize(kTo);
  if constexpr (kSameElements<kFrom, kTo>) {
    if (!rotation.rotated) {  // bit by bit, NaN and all
      a.Store(to + rotation.a * kSize);
      b.Store(to + rotation.b * kSize);
      return;
    }
  }
  Float2 x[4], y[4];
  Unpack(a, x);
  Unpack(b, y);
  from_scale.Apply(x, 0);
  from_scale.Apply(y, 1);
  if (rotation.rotated) Turn<kInterleaved>(rotation, x, y);
  to_scale.Remove(x, 0);
  to_scale.Remove(y, 1);
  Pack<kTo>(x).Store(to + rotation.a * kSize);
  Pack<kTo>(y).Store(to + rotation.b * kSize);
}

// One side of a move: item i's head begins at k + i * k_step, and v + i * v_step.
struct Rows {
  std::byte* k;
  std::byte* v;
  int64_t k_step, v_step;
};

template <Dtype kRecord, int kDim>
INFERSCALE_DEVICE Rows RecordRows(const TransferParams& params, const LaneWork& work) {
  constexpr uint32_t kHeadBytes = kDim * DtypeSize(kRecord);
  const uint32_t row = params.cache.heads * kHeadBytes;
  const int64_t plane = int64_t{work.span->record_tokens} * row;
  std::byte* k = work.span->record + 2 * work.record_layer * plane + int64_t{work.token} * row +
                 work.head * kHeadBytes;
  const int64_t step =
      2 * static_cast<int32_t>(work.record_layer_step) * plane + work.head_step * kHeadBytes;
  return {k, k + plane, step, step};
}

INFERSCALE_DEVICE Rows CacheRows(const TransferParams& params, const LaneWork& work) {
  const PluginCache& cache = params.cache;
  const auto k = static_cast<int64_t>(cache.k_base[work.layer]);
  const auto v = static_cast<int64_t>(cache.v_base[work.layer]);
  int64_t k_step = work.head_step * cache.k_head, v_step = work.head_step * cache.v_head;
  if (work.items == 2 && work.layer_step == 1) {
    k_step = static_cast<int64_t>(cache.k_base[work.layer + 1]) - k;
    v_step = static_cast<int64_t>(cache.v_base[work.layer + 1]) - v;
  }
  return {reinterpret_cast<std::byte*>(k + work.page * cache.k_page + work.in_page * cache.k_token +
                                       work.head * cache.k_head),
          reinterpret_cast<std::byte*>(v + work.page * cache.v_page + work.in_page * cache.v_token +
                                       work.head * cache.v_head),
          k_step, v_step};
}

template <Dtype kRecord, int kDim>
INFERSCALE_DEVICE auto RecordKeyScale(const TransferParams& params, const LaneWork& work,
                                      const Rotation& rotation, uint32_t item) {
  if constexpr (IsQuantised(kRecord)) {
    const size_t row = size_t{work.RecordLayerOf(item)} * params.cache.heads + work.HeadOf(item);
    const float* of_head = params.key_scales + row * kDim;
    LaneScales scales;
    LoadTable8(of_head + rotation.a, scales.scale[0]);
    LoadTable8(of_head + rotation.b, scales.scale[1]);
    return scales;
  } else {
    return NoScale{};
  }
}

// The scale of a quantised record's value: [layer][token][head] after all its planes.
template <int kDim>
INFERSCALE_DEVICE float* RecordValueScale(const TransferParams& params, const LaneWork& work,
                                          uint32_t item) {
  const size_t heads = params.cache.heads;
  const size_t tokens = work.span->record_tokens;
  auto* scales = reinterpret_cast<float*>(work.span->record +
                                          2 * params.cache.record_layers * tokens * heads * kDim);
  return scales + (work.RecordLayerOf(item) * tokens + work.token) * heads + work.HeadOf(item);
}

// What an fp8 cache's elements are to be multiplied with; `scales` is of its K or of its V.
template <Dtype kCache>
INFERSCALE_DEVICE auto CacheScale(const PluginCache& cache, const float* scales,
                                  const LaneWork& work, uint32_t item) {
  if constexpr (IsQuantised(kCache)) {
    if (scales == nullptr) return OneScale(1.0F);
    const uint32_t head = cache.scale_heads == 1 ? 0 : work.HeadOf(item);
    return OneScale(scales[work.LayerOf(item) * cache.scale_heads + head]);
  } else {
    return NoScale{};
  }
}

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_CUDA_TRANSFER_CUH_
