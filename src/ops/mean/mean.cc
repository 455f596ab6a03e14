#include "ops/mean/mean.h"

#include "ops/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/mean/mean.cc"
// This order matters.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "ops/convert-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace inferscale {
namespace HWY_NAMESPACE {

template <Dtype kType>
void AddAll(const std::byte* next, size_t elements, float count, std::byte* mean) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto divisor = hn::Set(d, count);
  const auto moved = [&](auto from, auto to) {
    return hn::Add(from, hn::Div(hn::Sub(to, from), divisor));
  };
  size_t i = 0;
  for (; i + lanes <= elements; i += lanes) {
    std::byte* at = mean + i * DtypeSize(kType);
    const auto to = LoadFloat<kType>(d, next + i * DtypeSize(kType));
    StoreFloat<kType>(d, moved(LoadFloat<kType>(d, at), to), at);
  }
  if (i == elements) return;
  std::byte* at = mean + i * DtypeSize(kType);
  const auto to = LoadFloatN<kType>(d, next + i * DtypeSize(kType), elements - i);
  const auto from = LoadFloatN<kType>(d, at, elements - i);
  StoreFloatN<kType>(d, moved(from, to), at, elements - i);
}

void AddAllOf(Dtype dtype, const std::byte* next, size_t elements, float count, std::byte* mean) {
  if (dtype == Dtype::kF16) return AddAll<Dtype::kF16>(next, elements, count, mean);
  if (dtype == Dtype::kBF16) return AddAll<Dtype::kBF16>(next, elements, count, mean);
  AddAll<Dtype::kF32>(next, elements, count, mean);
}

}  // namespace HWY_NAMESPACE
}  // namespace inferscale
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inferscale {
namespace {

HWY_EXPORT(AddAllOf);

Status Check(Dtype dtype, ByteSpan next, uint32_t count, MutableByteSpan mean) {
  if (IsQuantised(dtype)) {
    return Fail(Code::kInvalid, "no mean of {}: its scales differ", DtypeName(dtype));
  }
  if (count == 0 || next.size() != mean.size() || mean.size() % DtypeSize(dtype) != 0) {
    return Fail(Code::kInvalid, "no mean of {} arrays of {} and {} bytes of {}", count, mean.size(),
                next.size(), DtypeName(dtype));
  }
  return {};
}

}  // namespace

Status AddToMean(Dtype dtype, ByteSpan next, uint32_t count, MutableByteSpan mean) {
  INFERSCALE_TRY(Check(dtype, next, count, mean));
  HWY_DYNAMIC_DISPATCH(AddAllOf)
  (dtype, next.data(), mean.size() / DtypeSize(dtype), static_cast<float>(count), mean.data());
  return {};
}

Status AddToMeanReference(Dtype dtype, ByteSpan next, uint32_t count, MutableByteSpan mean) {
  INFERSCALE_TRY(Check(dtype, next, count, mean));
  for (size_t i = 0; i < mean.size() / DtypeSize(dtype); ++i) {
    const auto from = static_cast<float>(ReadElement(mean.data(), dtype, i));
    const auto to = static_cast<float>(ReadElement(next.data(), dtype, i));
    const float step = (to - from) / static_cast<float>(count);
    WriteElement(mean.data(), dtype, i, double{from + step});
  }
  return {};
}

}  // namespace inferscale
#endif  // HWY_ONCE
