#include "kv/shape.h"

namespace inferscale {

namespace {

constexpr uint32_t kMaxDims = 1024;
constexpr uint32_t kMaxCount = 4096;

Status CheckCount(std::string_view what, uint32_t value, uint32_t max) {
  if (value >= 1 && value <= max) return {};
  return Fail(Code::kInvalid, "KV shape: {} is {}, not 1 to {}", what, value, max);
}

}  // namespace

std::string_view DtypeName(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return "f32";
    case Dtype::kF16:
      return "f16";
    case Dtype::kBF16:
      return "bf16";
    case Dtype::kI8:
      return "i8";
    case Dtype::kF8E4M3:
      return "f8e4m3";
  }
  return "unknown";
}

Result<Dtype> ParseDtype(std::string_view name) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16, Dtype::kI8, Dtype::kF8E4M3}) {
    if (name == DtypeName(dtype)) return dtype;
  }
  return Fail(Code::kInvalid, "dtype '{}' is none of f32, f16, bf16, i8, f8e4m3", name);
}

Status KvShape::Validate() const {
  INFERSCALE_TRY(CheckCount("the number of layers", layers, kMaxCount));
  INFERSCALE_TRY(CheckCount("the number of KV heads", kv_heads, kMaxCount));
  INFERSCALE_TRY(CheckCount("the key's dims per head", k_dim, kMaxDims));
  INFERSCALE_TRY(CheckCount("the value's dims per head", v_dim, kMaxDims));
  if (dtype > kLastDtype) {
    return Fail(Code::kInvalid, "KV shape: there is no dtype {}", static_cast<int>(dtype));
  }
  return {};
}

std::string KvShape::ToString() const {
  return fmt::format("{} layers x {} heads x {}/{} {}", layers, kv_heads, k_dim, v_dim,
                     DtypeName(dtype));
}

}  // namespace inferscale
