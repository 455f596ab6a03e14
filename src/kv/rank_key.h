// With tensor parallelism every rank keeps its heads of a record as a record of its own. Their keys
// follow from the record's, and the record's from theirs:
//
//   key of rank r of n = key XOR XXH3-128(r, n)        (each 4 bytes, little-endian)
//
// One rank alone keeps the key.
#ifndef INFERSCALE_KV_RANK_KEY_H_
#define INFERSCALE_KV_RANK_KEY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"

namespace inferscale {

// Its own inverse.
Hash128 RankKey(const Hash128& key, uint32_t rank, uint32_t ranks);

// All ranks' keys of each, together: those of keys[i] from i * ranks on.
std::vector<Hash128> RankKeys(std::span<const Hash128> keys, uint32_t ranks);

}  // namespace inferscale

#endif  // INFERSCALE_KV_RANK_KEY_H_
