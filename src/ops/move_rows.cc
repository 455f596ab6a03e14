#include "ops/move_rows.h"

#include <cstring>
#include <span>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/move_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace inferscale {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;

// Elements [i, i + lanes) of a head, times their channels' scales if they are quantised.
template <Dtype kFrom>
HWY_INLINE hn::Vec<FloatTag> LoadAt(FloatTag d, const std::byte* from, const float* scales,
                                    size_t i) {
  const auto value = LoadFloat<kFrom>(d, from + i * DtypeSize(kFrom));
  if constexpr (IsQuantised(kFrom)) {
    return hn::Mul(value, hn::LoadU(d, scales + i));
  } else {
    return value;
  }
}

// The same for `count` elements, fewer than lanes.
template <Dtype kFrom>
HWY_INLINE hn::Vec<FloatTag> LoadAtN(FloatTag d, const std::byte* from, const float* scales,
                                     size_t i, size_t count) {
  const auto value = LoadFloatN<kFrom>(d, from + i * DtypeSize(kFrom), count);
  if constexpr (IsQuantised(kFrom)) {
    return hn::Mul(value, LoadFloatN(d, scales + i, count));
  } else {
    return value;
  }
}

template <Dtype kFrom, Dtype kTo>
void Convert(const std::byte* from, const float* scales, std::byte* to, size_t count) {
  if constexpr (kFrom == kTo) {
    std::memcpy(to, from, count * DtypeSize(kFrom));
  } else {
    const FloatTag d;
    const size_t lanes = hn::Lanes(d);
    size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      StoreFloat<kTo>(d, LoadAt<kFrom>(d, from, scales, i), to + i * DtypeSize(kTo));
    }
    if (i < count) {
      StoreFloatN<kTo>(d, LoadAtN<kFrom>(d, from, scales, i, count - i), to + i * DtypeSize(kTo),
                       count - i);
    }
  }
}

// The same with one scale for all.
template <Dtype kFrom, Dtype kTo>
void ConvertScaled(const std::byte* from, float scale, std::byte* to, size_t count) {
  const FloatTag d;
  const auto factor = hn::Set(d, scale);
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    StoreFloat<kTo>(d, hn::Mul(LoadFloat<kFrom>(d, from + i), factor), to + i * DtypeSize(kTo));
  }
  if (i < count) {
    StoreFloatN<kTo>(d, hn::Mul(LoadFloatN<kFrom>(d, from + i, count - i), factor),
                     to + i * DtypeSize(kTo), count - i);
  }
}

// (x[i], x[i + pairs]): own = cos, partner = sin, both `pairs` long.
template <Dtype kFrom, Dtype kTo>
HWY_INLINE void RotateNeox(const std::byte* from, const float* scales, std::byte* to, size_t pairs,
                           const float* own, const float* partner) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  std::byte* to_b = to + pairs * DtypeSize(kTo);
  size_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const auto c = hn::LoadU(d, own + i);
    const auto s = hn::LoadU(d, partner + i);
    const auto a = LoadAt<kFrom>(d, from, scales, i);
    const auto b = LoadAt<kFrom>(d, from, scales, i + pairs);
    StoreFloat<kTo>(d, hn::MulSub(a, c, hn::Mul(b, s)), to + i * DtypeSize(kTo));
    StoreFloat<kTo>(d, hn::MulAdd(b, c, hn::Mul(a, s)), to_b + i * DtypeSize(kTo));
  }
  if (i < pairs) {
    const size_t rest = pairs - i;
    const auto c = LoadFloatN(d, own + i, rest);
    const auto s = LoadFloatN(d, partner + i, rest);
    const auto a = LoadAtN<kFrom>(d, from, scales, i, rest);
    const auto b = LoadAtN<kFrom>(d, from, scales, i + pairs, rest);
    StoreFloatN<kTo>(d, hn::MulSub(a, c, hn::Mul(b, s)), to + i * DtypeSize(kTo), rest);
    StoreFloatN<kTo>(d, hn::MulAdd(b, c, hn::Mul(a, s)), to_b + i * DtypeSize(kTo), rest);
  }
}

// (x[2i], x[2i + 1]): x own + swapped(x) partner, element by element.
template <Dtype kFrom, Dtype kTo>
HWY_INLINE void RotateInterleaved(const std::byte* from, const float* scales, std::byte* to,
                                  size_t dims, const float* own, const float* partner) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= dims; i += lanes) {
    const auto x = LoadAt<kFrom>(d, from, scales, i);
    const auto swapped = hn::Mul(hn::Reverse2(d, x), hn::LoadU(d, partner + i));
    StoreFloat<kTo>(d, hn::MulAdd(x, hn::LoadU(d, own + i), swapped), to + i * DtypeSize(kTo));
  }
  if (i < dims) {
    const auto x = LoadAtN<kFrom>(d, from, scales, i, dims - i);
    const auto c = LoadFloatN(d, own + i, dims - i);
    const auto s = LoadFloatN(d, partner + i, dims - i);
    StoreFloatN<kTo>(d, hn::MulAdd(x, c, hn::Mul(hn::Reverse2(d, x), s)), to + i * DtypeSize(kTo),
                     dims - i);
  }
}

template <Dtype kFrom, Dtype kTo>
void RotateRows(const MoveJob& job) {
  const size_t width = job.rotations->width();
  const size_t rest = job.dims - job.rotary_dims;
  for (uint32_t t = 0; t < job.tokens; ++t) {
    const float* own = job.rotations->Row(job.first_rotation + t);
    const float* partner = own + width;
    const float* scales = job.channel_scales;
    const std::byte* from = job.from.data + t * job.from.token_stride;
    std::byte* to = job.to.data + t * job.to.token_stride;
    for (uint32_t h = 0; h < job.heads; ++h) {
      if (job.kind == RopeKind::kNeox) {
        RotateNeox<kFrom, kTo>(from, scales, to, job.rotary_dims / 2, own, partner);
      } else {
        RotateInterleaved<kFrom, kTo>(from, scales, to, job.rotary_dims, own, partner);
      }
      if (rest != 0) {
        Convert<kFrom, kTo>(from + job.rotary_dims * DtypeSize(kFrom),
                            IsQuantised(kFrom) ? scales + job.rotary_dims : nullptr,
                            to + job.rotary_dims * DtypeSize(kTo), rest);
      }
      from += job.from.head_stride;
      to += job.to.head_stride;
      if constexpr (IsQuantised(kFrom)) scales += job.dims;
    }
  }
}

template <Dtype kFrom, Dtype kTo>
void CopyRows(const MoveJob& job) {
  size_t piece = job.dims;
  uint32_t heads = job.heads;
  uint32_t tokens = job.tokens;
  // What lies without gaps on both sides is one piece.
  const auto joins = [&](int64_t from_stride, int64_t to_stride) {
    return from_stride == static_cast<int64_t>(piece * DtypeSize(kFrom)) &&
           to_stride == static_cast<int64_t>(piece * DtypeSize(kTo));
  };
  if (heads == 1 || joins(job.from.head_stride, job.to.head_stride)) {
    piece *= std::exchange(heads, 1);
    if (joins(job.from.token_stride, job.to.token_stride)) piece *= std::exchange(tokens, 1);
  }
  for (uint32_t t = 0; t < tokens; ++t) {
    for (uint32_t h = 0; h < heads; ++h) {
      Convert<kFrom, kTo>(job.from.data + t * job.from.token_stride + h * job.from.head_stride,
                          nullptr, job.to.data + t * job.to.token_stride + h * job.to.head_stride,
                          piece);
    }
  }
}

// Quantised rows without rotation.
template <Dtype kFrom, Dtype kTo>
void ScaleRows(const MoveJob& job) {
  for (uint32_t t = 0; t < job.tokens; ++t) {
    for (uint32_t h = 0; h < job.heads; ++h) {
      const std::byte* from = job.from.data + t * job.from.token_stride + h * job.from.head_stride;
      std::byte* to = job.to.data + t * job.to.token_stride + h * job.to.head_stride;
      if (job.row_scales == nullptr) {
        Convert<kFrom, kTo>(from, job.channel_scales + size_t{h} * job.dims, to, job.dims);
      } else {
        float scale;
        std::memcpy(&scale, job.row_scales + (size_t{t} * job.heads + h) * sizeof(float),
                    sizeof(float));
        ConvertScaled<kFrom, kTo>(from, scale, to, job.dims);
      }
    }
  }
}

template <Dtype kFrom, Dtype kTo>
void Move(const MoveJob& job) {
  if (job.kind != RopeKind::kNone) {
    RotateRows<kFrom, kTo>(job);
  } else if constexpr (IsQuantised(kFrom)) {
    ScaleRows<kFrom, kTo>(job);
  } else {
    CopyRows<kFrom, kTo>(job);
  }
}

template <Dtype kFrom>
void MoveFrom(const MoveJob& job) {
  switch (job.to.dtype) {
    case Dtype::kF32:
      return Move<kFrom, Dtype::kF32>(job);
    case Dtype::kF16:
      return Move<kFrom, Dtype::kF16>(job);
    case Dtype::kBF16:
      return Move<kFrom, Dtype::kBF16>(job);
    case Dtype::kI8:
    case Dtype::kF8E4M3:
      break;  // the contract
  }
}

void MoveRowsImpl(const MoveJob& job) {
  switch (job.from.dtype) {
    case Dtype::kF32:
      return MoveFrom<Dtype::kF32>(job);
    case Dtype::kF16:
      return MoveFrom<Dtype::kF16>(job);
    case Dtype::kBF16:
      return MoveFrom<Dtype::kBF16>(job);
    case Dtype::kI8:
      return MoveFrom<Dtype::kI8>(job);
    case Dtype::kF8E4M3:
      return MoveFrom<Dtype::kF8E4M3>(job);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace inferscale
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inferscale {

HWY_EXPORT(MoveRowsImpl);

void MoveRows(const MoveJob& job) { HWY_DYNAMIC_DISPATCH(MoveRowsImpl)(job); }

void Rotations::Fill(const RopeTable& table, int32_t position, uint32_t tokens, bool inverse) {
  const size_t pairs = table.pairs();
  const bool interleaved = table.spec().kind == RopeKind::kInterleaved;
  width_ = interleaved ? 2 * pairs : pairs;
  values_.resize(size_t{tokens} * 2 * width_);
  scratch_.resize(2 * pairs);
  const std::span cos(scratch_.data(), pairs);
  const std::span sin(scratch_.data() + pairs, pairs);
  for (uint32_t t = 0; t < tokens; ++t) {
    table.Fill(position + static_cast<int32_t>(t), cos, sin);
    float* own = values_.data() + size_t{t} * 2 * width_;
    float* partner = own + width_;
    for (size_t i = 0; i < pairs; ++i) {
      // The inverse of (c, s) is (c, -s) / (c^2 + s^2), where the division takes YaRN's magnitude
      // off.
      const float scale = inverse ? 1.0F / (cos[i] * cos[i] + sin[i] * sin[i]) : 1.0F;
      const float c = cos[i] * scale;
      const float s = inverse ? -sin[i] * scale : sin[i];
      if (interleaved) {
        own[2 * i] = own[2 * i + 1] = c;
        partner[2 * i] = -s;
        partner[2 * i + 1] = s;
      } else {
        own[i] = c;
        partner[i] = s;
      }
    }
  }
}

}  // namespace inferscale
#endif  // HWY_ONCE
