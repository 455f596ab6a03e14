// The types of KV's elements. By itself, because device compilers read it too.
#ifndef INFERSCALE_KV_DTYPE_H_
#define INFERSCALE_KV_DTYPE_H_

#include <cstddef>
#include <cstdint>

namespace inferscale {

// Numbers are part of the segment format: never reuse one.
enum class Dtype : uint8_t { kF32 = 0, kF16 = 1, kBF16 = 2, kI8 = 3, kF8E4M3 = 4 };
inline constexpr Dtype kLastDtype = Dtype::kF8E4M3;

// Elements that mean something only together with scales; see FactKv.
constexpr bool IsQuantised(Dtype dtype) { return dtype == Dtype::kI8 || dtype == Dtype::kF8E4M3; }
constexpr size_t DtypeSize(Dtype dtype) {
  return IsQuantised(dtype) ? 1 : dtype == Dtype::kF32 ? 4 : 2;
}

}  // namespace inferscale

#endif  // INFERSCALE_KV_DTYPE_H_
