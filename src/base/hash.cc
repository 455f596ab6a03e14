#include "base/hash.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace inferscale {
namespace {

Hash128 FromXxh(XXH128_hash_t value) { return {value.high64, value.low64}; }

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  constexpr uint32_t kReversedPolynomial = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kReversedPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr auto kCrcTable = MakeCrcTable();

uint32_t CrcPortable(ByteSpan bytes, uint32_t crc) {
  for (std::byte b : bytes) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ std::to_integer<uint32_t>(b)) & 0xFF];
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t CrcSse42(ByteSpan bytes, uint32_t crc) {
  uint64_t wide = crc;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  return CrcPortable(bytes.subspan(i), static_cast<uint32_t>(wide));
}
#endif

}  // namespace

std::string Hash128::Hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Hash128 Hash128::FromHex(std::string_view hex) {
  Hash128 out;
  if (hex.size() != 32) return {};
  auto parse = [](std::string_view digits, uint64_t& value) {
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  if (!parse(hex.substr(0, 16), out.high) || !parse(hex.substr(16), out.low)) return {};
  return out;
}

Hash128 HashBytes(ByteSpan bytes) { return FromXxh(XXH3_128bits(bytes.data(), bytes.size())); }

Hasher::Hasher() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}

Hasher::~Hasher() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

Hasher& Hasher::AddBytes(ByteSpan bytes) {
  return Add(static_cast<uint64_t>(bytes.size())).AddRaw(bytes);
}

Hasher& Hasher::AddRaw(ByteSpan bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
  return *this;
}

Hasher& Hasher::Add(uint64_t value) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), &value, sizeof(value));
  return *this;
}

Hash128 Hasher::Digest() const {
  return FromXxh(XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_)));
}

uint32_t Crc32c(ByteSpan bytes, uint32_t seed) {
  const uint32_t crc = ~seed;
#if defined(__x86_64__)
  static const bool kHasSse42 = __builtin_cpu_supports("sse4.2");
  if (kHasSse42) return ~CrcSse42(bytes, crc);
#endif
  return ~CrcPortable(bytes, crc);
}

}  // namespace inferscale
