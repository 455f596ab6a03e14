// How topk's searches are cut into launches, blocks and tiles: the host's half of topk on CUDA.
// Plain C++, shared by the launcher (topk_launch.cuh) and the host emulation.
//
// A launch holds up to 126 searches in 4 KB of kernel parameters, or up to 1,000 in 32 KB where
// there are more; beyond that there are several. A block scores one tile's number of rows of one
// search, and the last block of a search to finish finds the best of what all wrote.
#ifndef INFERSCALE_OPS_TOPK_TOPK_PLAN_H_
#define INFERSCALE_OPS_TOPK_TOPK_PLAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kv/dtype.h"
#include "ops/cuda/plugin.h"

namespace inferscale::cuda {

inline constexpr uint32_t kTopKMaxK = 128;
inline constexpr uint32_t kTopKMaxDims = 4096;
inline constexpr uint32_t kTopKMaxRows = 1U << 31;
inline constexpr uint32_t kTopKMaxTile = 1024;  // rows
inline constexpr uint32_t kTopKMinTile = 16;
inline constexpr uint32_t kTopKMaxWarps = 8;  // of a block

inline constexpr uint32_t kTopKSmallLaunch = 126;  // searches; fits 4 KB
inline constexpr uint32_t kTopKLargeLaunch = 1000;
// The workspace begins with a ticket for each search of a launch; then come the keys of all rows,
// tile_rows for each block, and the best key of each warp.
inline constexpr size_t kTopKTicketBytes = 4096;

struct TopKSegment {
  const void* rows;
  const float* query;
  const uint64_t* allowed;
  uint32_t count;
  uint32_t first_block;
};

template <uint32_t kMaxSearches>
struct TopKParams {
  uint32_t* out_rows;
  float* out_scores;
  uint32_t* tickets;  // zero before and after a launch
  uint64_t* keys;     // for each search [count], from first_block * tile_rows on
  uint32_t searches, blocks, dims, k, tile_rows;
  TopKSegment segments[kMaxSearches];
};
static_assert(sizeof(TopKParams<kTopKSmallLaunch>) <= 4096);
static_assert(sizeof(TopKParams<kTopKLargeLaunch>) <= 32764);
static_assert(kTopKLargeLaunch * sizeof(uint32_t) <= kTopKTicketBytes);

// Whether the kernels can do it at all. What they need besides (pointers, alignment) is the
// caller's to check.
inline bool CanTopK(const PluginTopK& topk) {
  const auto dtype = static_cast<Dtype>(topk.row_dtype);
  const bool small = std::all_of(topk.searches, topk.searches + topk.search_count,
                                 [](const PluginSearch& s) { return s.count <= kTopKMaxRows; });
  return (dtype == Dtype::kF16 || dtype == Dtype::kF32) && topk.dims > 0 && topk.dims % 8 == 0 &&
         topk.dims <= kTopKMaxDims && topk.k > 0 && topk.k <= kTopKMaxK && small;
}

// An empty search has a tile too: the block that says that nothing was found.
inline uint32_t TopKTiles(const PluginSearch& search, uint32_t tile_rows) {
  return std::max(1U, (search.count + tile_rows - 1) / tile_rows);
}

inline uint64_t TopKBlocks(std::span<const PluginSearch> searches, uint32_t tile_rows) {
  uint64_t blocks = 0;
  for (const PluginSearch& search : searches) blocks += TopKTiles(search, tile_rows);
  return blocks;
}

// What a device can hold, and how often it should be filled at least.
struct TopKDevice {
  uint32_t resident_blocks = 0;
  uint32_t min_waves = 1;
};

// The smallest tile with which the blocks fill the device a whole number of times: a last block
// that starts when all others end would double the time of a small batch.
inline uint32_t TopKTileRows(std::span<const PluginSearch> searches, const TopKDevice& device) {
  const auto round_up = [](uint64_t value, uint64_t step) { return (value + step - 1) / step; };
  uint64_t rows = 0;
  for (const PluginSearch& search : searches) rows += search.count;
  const uint64_t waves = std::max({uint64_t{device.min_waves},
                                   round_up(rows, uint64_t{device.resident_blocks} * kTopKMaxTile),
                                   round_up(searches.size(), device.resident_blocks)});
  const uint64_t blocks = waves * device.resident_blocks;
  constexpr uint32_t kStep = 16;
  auto tile = static_cast<uint32_t>(std::clamp<uint64_t>(
      round_up(round_up(rows, blocks), kStep) * kStep, kTopKMinTile, kTopKMaxTile));
  while (tile < kTopKMaxTile && TopKBlocks(searches, tile) > blocks) tile += kStep;
  return tile;
}

// Calls run(searches of one launch, index of the first) until one is not 0, and returns that.
template <typename Run>
int ForEachTopKLaunch(const PluginTopK& topk, Run run) {
  const uint32_t most = topk.search_count <= kTopKSmallLaunch ? kTopKSmallLaunch : kTopKLargeLaunch;
  for (uint32_t first = 0; first < topk.search_count; first += most) {
    const std::span searches(topk.searches + first, std::min(most, topk.search_count - first));
    if (const int error = run(searches, first); error != 0) return error;
  }
  return 0;
}

inline uint64_t TopKWorkspaceBytes(const PluginTopK& topk, const TopKDevice& device) {
  uint64_t keys = 0;
  ForEachTopKLaunch(topk, [&](std::span<const PluginSearch> searches, uint32_t) {
    const uint32_t tile = TopKTileRows(searches, device);
    keys = std::max(keys, TopKBlocks(searches, tile) * (tile + kTopKMaxWarps));
    return 0;
  });
  return kTopKTicketBytes + keys * sizeof(uint64_t);
}

template <uint32_t kMaxSearches>
TopKParams<kMaxSearches> MakeTopKParams(const PluginTopK& topk,
                                        std::span<const PluginSearch> searches, uint32_t first,
                                        const TopKDevice& device) {
  TopKParams<kMaxSearches> params;
  params.out_rows = topk.out_rows + size_t{first} * topk.k;
  params.out_scores = topk.out_scores + size_t{first} * topk.k;
  params.tickets = static_cast<uint32_t*>(topk.workspace);
  params.keys =
      reinterpret_cast<uint64_t*>(static_cast<std::byte*>(topk.workspace) + kTopKTicketBytes);
  params.searches = static_cast<uint32_t>(searches.size());
  params.dims = topk.dims;
  params.k = topk.k;
  params.tile_rows = TopKTileRows(searches, device);
  params.blocks = 0;
  TopKSegment* segment = params.segments;
  for (const PluginSearch& search : searches) {
    *segment++ = {search.rows, search.query, search.allowed, search.count, params.blocks};
    params.blocks += TopKTiles(search, params.tile_rows);
  }
  return params;
}

// Bytes of dynamic shared memory: the query, padded to whole rounds of a warp's loads.
inline size_t TopKSharedBytes(uint32_t dims, bool half) {
  const uint32_t round = half ? 128 : 64;  // elements; see TopKBody
  return size_t{(dims + round - 1) / round} * round * sizeof(float);
}

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_TOPK_TOPK_PLAN_H_
