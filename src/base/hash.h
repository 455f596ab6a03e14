// Content hashes (XXH3-128) and record checksums (CRC-32C, RFC 3720 B.4).
#ifndef INFERSCALE_BASE_HASH_H_
#define INFERSCALE_BASE_HASH_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace inferscale {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  auto operator<=>(const Hash128&) const = default;
  bool IsZero() const { return high == 0 && low == 0; }
  std::string Hex() const;  // 32 lower-case digits
  // From 32 hexadecimal digits; zero if it is anything else.
  static Hash128 FromHex(std::string_view hex);
};

Hash128 HashBytes(ByteSpan bytes);

// Hashes a sequence of fields so that ("ab", "c") and ("a", "bc") differ: every field is preceded
// by its length. The order of calls is part of the hash.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  Hasher& Add(std::string_view text) { return AddBytes(AsBytes(text)); }
  Hasher& AddBytes(ByteSpan bytes);
  // Without its length: for a stream whose pieces mean nothing.
  Hasher& AddRaw(ByteSpan bytes);
  Hasher& Add(uint64_t value);
  Hasher& Add(const Hash128& value) { return Add(value.high).Add(value.low); }
  Hash128 Digest() const;

 private:
  void* state_;
};

// CRC-32C of `bytes`, continuing from `seed` (the value returned for what came before).
uint32_t Crc32c(ByteSpan bytes, uint32_t seed = 0);

}  // namespace inferscale

template <>
struct std::hash<inferscale::Hash128> {
  size_t operator()(const inferscale::Hash128& value) const noexcept { return value.low; }
};

#endif  // INFERSCALE_BASE_HASH_H_
