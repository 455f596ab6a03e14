#include "ops/codec/quantise_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/codec/quantise_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kv/element_bits.h"
#include "ops/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace inferscale {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;

template <Dtype kTo>
constexpr float Limit() {
  return kTo == Dtype::kI8 ? kI8Max : kF8Max;
}

HWY_INLINE Floats Quotient(FloatTag d, Floats value, Floats scale) {
  return hn::IfThenElseZero(hn::Ne(scale, hn::Zero(d)), hn::Div(value, scale));
}

template <Dtype kFrom, Dtype kTo>
struct ByChannel {
  static uint64_t Run(const QuantiseJob& job, const float* scales) {
    const FloatTag d;
    const size_t lanes = hn::Lanes(d);
    const auto limit = hn::Set(d, Limit<kTo>());
    uint64_t clamped = 0;
    for (size_t row = 0; row < job.rows; ++row) {
      const std::byte* from = job.from + row * job.dims * DtypeSize(kFrom);
      std::byte* to = job.to + row * job.dims;
      size_t i = 0;
      for (; i + lanes <= job.dims; i += lanes) {
        const auto q =
            Quotient(d, LoadFloat<kFrom>(d, from + i * DtypeSize(kFrom)), hn::LoadU(d, scales + i));
        clamped += hn::CountTrue(d, hn::Gt(hn::Abs(q), limit));
        StoreFloat<kTo>(d, q, to + i);
      }
      if (i < job.dims) {
        const size_t rest = job.dims - i;
        const auto q = Quotient(d, LoadFloatN<kFrom>(d, from + i * DtypeSize(kFrom), rest),
                                LoadFloatN(d, scales + i, rest));
        clamped += hn::CountTrue(d, hn::Gt(hn::Abs(q), limit));
        StoreFloatN<kTo>(d, q, to + i, rest);
      }
    }
    return clamped;
  }
};

template <Dtype kFrom>
HWY_INLINE float LargestFinite(const std::byte* from, size_t dims) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto most = hn::Set(d, std::numeric_limits<float>::max());
  auto largest = hn::Zero(d);
  const auto take = [&](Floats value) HWY_ATTR {
    const auto magnitude = hn::Abs(value);
    largest = hn::Max(largest, hn::IfThenElseZero(hn::Le(magnitude, most), magnitude));
  };
  size_t i = 0;
  for (; i + lanes <= dims; i += lanes) take(LoadFloat<kFrom>(d, from + i * DtypeSize(kFrom)));
  if (i < dims) take(LoadFloatN<kFrom>(d, from + i * DtypeSize(kFrom), dims - i));
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

template <Dtype kFrom, Dtype kTo>
struct ByRow {
  static uint64_t Run(const QuantiseJob& job, std::byte* scales) {
    const FloatTag d;
    const size_t lanes = hn::Lanes(d);
    for (size_t row = 0; row < job.rows; ++row) {
      const std::byte* from = job.from + row * job.dims * DtypeSize(kFrom);
      std::byte* to = job.to + row * job.dims;
      const float scale = LargestFinite<kFrom>(from, job.dims) / Limit<kTo>();
      std::memcpy(scales + row * sizeof(float), &scale, sizeof(float));
      const auto divisor = hn::Set(d, scale);
      size_t i = 0;
      for (; i + lanes <= job.dims; i += lanes) {
        const auto value = LoadFloat<kFrom>(d, from + i * DtypeSize(kFrom));
        StoreFloat<kTo>(d, Quotient(d, value, divisor), to + i);
      }
      if (i < job.dims) {
        const auto value = LoadFloatN<kFrom>(d, from + i * DtypeSize(kFrom), job.dims - i);
        StoreFloatN<kTo>(d, Quotient(d, value, divisor), to + i, job.dims - i);
      }
    }
    return 0;
  }
};

template <template <Dtype, Dtype> class Loop, Dtype kFrom, typename Scales>
uint64_t DispatchTo(const QuantiseJob& job, Scales scales) {
  return job.to_dtype == Dtype::kI8 ? Loop<kFrom, Dtype::kI8>::Run(job, scales)
                                    : Loop<kFrom, Dtype::kF8E4M3>::Run(job, scales);
}

template <template <Dtype, Dtype> class Loop, typename Scales>
uint64_t Dispatch(const QuantiseJob& job, Scales scales) {
  switch (job.from_dtype) {
    case Dtype::kF32:
      return DispatchTo<Loop, Dtype::kF32>(job, scales);
    case Dtype::kF16:
      return DispatchTo<Loop, Dtype::kF16>(job, scales);
    case Dtype::kBF16:
      return DispatchTo<Loop, Dtype::kBF16>(job, scales);
    case Dtype::kI8:
    case Dtype::kF8E4M3:
      break;  // refused by CheckCodec
  }
  return 0;
}

uint64_t QuantiseByChannelImpl(const QuantiseJob& job, const float* scales) {
  return Dispatch<ByChannel>(job, scales);
}

void QuantiseByRowImpl(const QuantiseJob& job, std::byte* scales) { Dispatch<ByRow>(job, scales); }

}  // namespace HWY_NAMESPACE
}  // namespace inferscale
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inferscale {

HWY_EXPORT(QuantiseByChannelImpl);
HWY_EXPORT(QuantiseByRowImpl);

uint64_t QuantiseByChannel(const QuantiseJob& job, const float* scales) {
  return HWY_DYNAMIC_DISPATCH(QuantiseByChannelImpl)(job, scales);
}

void QuantiseByRow(const QuantiseJob& job, std::byte* scales) {
  HWY_DYNAMIC_DISPATCH(QuantiseByRowImpl)(job, scales);
}

}  // namespace inferscale
#endif  // HWY_ONCE
