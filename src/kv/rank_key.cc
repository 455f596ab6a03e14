#include "kv/rank_key.h"

#include <array>

#include "base/bytes.h"

namespace inferscale {
namespace {

std::array<std::byte, 4> LittleEndian(uint32_t value) {
  std::array<std::byte, 4> bytes{};
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(value & 0xff);
    value >>= 8;
  }
  return bytes;
}

}  // namespace

Hash128 RankKey(const Hash128& key, uint32_t rank, uint32_t ranks) {
  if (ranks == 1) return key;
  const auto rank_bytes = LittleEndian(rank);
  const auto ranks_bytes = LittleEndian(ranks);
  const Hash128 mask = Hasher().AddBytes(rank_bytes).AddBytes(ranks_bytes).Digest();
  return {key.high ^ mask.high, key.low ^ mask.low};
}

std::vector<Hash128> RankKeys(std::span<const Hash128> keys, uint32_t ranks) {
  std::vector<Hash128> out;
  out.reserve(keys.size() * ranks);
  for (const Hash128& key : keys) {
    for (uint32_t rank = 0; rank < ranks; ++rank) out.push_back(RankKey(key, rank, ranks));
  }
  return out;
}

}  // namespace inferscale
