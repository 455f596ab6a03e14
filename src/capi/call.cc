#include "capi/call.h"

#include <algorithm>

namespace inferscale::capi {

int32_t Report(int32_t code, std::string_view message, inferscale_error* error) noexcept {
  if (error == nullptr) return code;
  size_t bytes = std::min(message.size(), sizeof(error->message) - 1);
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
  while (bytes > 0 && bytes < message.size() && continues(message[bytes])) --bytes;
  error->code = code;
  std::copy_n(message.data(), bytes, error->message);
  error->message[bytes] = 0;
  return code;
}

Hash128 FromKey(const inferscale_key& key) {
  uint64_t halves[2];
  static_assert(sizeof(halves) == sizeof(key.bytes));
  std::memcpy(halves, key.bytes, sizeof(halves));
  return {__builtin_bswap64(halves[0]), __builtin_bswap64(halves[1])};
}

inferscale_key ToKey(const Hash128& hash) {
  const uint64_t halves[2] = {__builtin_bswap64(hash.high), __builtin_bswap64(hash.low)};
  inferscale_key key;
  std::memcpy(key.bytes, halves, sizeof(halves));
  return key;
}

std::vector<Hash128> FromKeys(std::span<const inferscale_key> keys) {
  std::vector<Hash128> out(keys.size());
  std::transform(keys.begin(), keys.end(), out.begin(), FromKey);
  return out;
}

Result<Dtype> FromDtype(uint32_t dtype) {
  switch (dtype) {
    case INFERSCALE_F32:
      return Dtype::kF32;
    case INFERSCALE_F16:
      return Dtype::kF16;
    case INFERSCALE_BF16:
      return Dtype::kBF16;
    case INFERSCALE_F8_E4M3:
      return Dtype::kF8E4M3;
    default:
      return Fail(Code::kInvalid, "there is no dtype {}", dtype);
  }
}

Result<KvOwner> FromOwner(const inferscale_owner* owner) {
  INFERSCALE_TRY(NotNull(owner, "owner"));
  INFERSCALE_TRY(NotNull(owner->tenant, "owner.tenant"));
  KvOwner out;
  out.tenant = owner->tenant;
  out.fingerprint = FromKey(owner->fingerprint);
  if (out.fingerprint.IsZero()) return Fail(Code::kInvalid, "owner.fingerprint is zero");
  const inferscale_shape& shape = owner->shape;
  INFERSCALE_ASSIGN(const Dtype dtype, FromDtype(shape.dtype));
  if (IsQuantised(dtype)) return Fail(Code::kInvalid, "records of {}", DtypeName(dtype));
  out.shape = {shape.layers, shape.kv_heads, shape.dim, shape.dim, dtype};
  INFERSCALE_TRY(out.shape.Validate());
  return out;
}

}  // namespace inferscale::capi
