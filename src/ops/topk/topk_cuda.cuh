// The body of topk on CUDA, for device and host (contract: topk.h; cutting: topk_plan.h).
//
// One pass over the rows: 16 lanes read a row in pieces of 16 bytes, kRows rows at a time, while
// the next pieces are on their way. Warps of all blocks of a search take its rows in turn. Scores
// go to the workspace as 64-bit keys whose order is the order of results. The order in which a row
// is summed depends on dims and dtype alone, so equal rows have equal scores wherever they lie.
//
// The search's last block reads the keys, or of many only the best one of each warp. Each of its
// threads looks at some: the k-th largest of the threads' best keys is a bound that k keys reach
// and few others, since rows are dealt out. What reaches it goes to shared memory and is ranked.
#ifndef INFERSCALE_OPS_TOPK_TOPK_CUDA_CUH_
#define INFERSCALE_OPS_TOPK_TOPK_CUDA_CUH_

#include "ops/cuda/portable.h"
#include "ops/topk/topk_plan.h"

namespace inferscale::cuda {

// A larger key is a better result: the higher score, then the smaller row. 0 is no result.
INFERSCALE_DEVICE uint64_t TopKKey(float score, uint32_t row) {
  if (score != score) return 0;
  const uint32_t bits = BitsOf(score + 0.0F);  // -0 equals 0
  const uint32_t ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return uint64_t{ordered} << 32 | (0xFFFFFFFFU - row);
}
INFERSCALE_DEVICE uint32_t TopKKeyRow(uint64_t key) {
  return 0xFFFFFFFFU - static_cast<uint32_t>(key);
}
INFERSCALE_DEVICE float TopKKeyScore(uint64_t key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return FloatOf((ordered & 0x80000000U) != 0 ? ordered & 0x7FFFFFFFU : ~ordered);
}

// Sixteen bytes of a row.
template <bool kHalf>
struct TopKChunk;
template <>
struct TopKChunk<true> {
  static constexpr uint32_t kElements = 8;
  static INFERSCALE_DEVICE float AddTo(float sum, const Vec16& chunk, const Float4* query) {
    INFERSCALE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Float2 low = F16PairToFloat(chunk.word[2 * half]);
      const Float2 high = F16PairToFloat(chunk.word[2 * half + 1]);
      sum = Fma(low.x, query[half].x, sum);
      sum = Fma(low.y, query[half].y, sum);
      sum = Fma(high.x, query[half].z, sum);
      sum = Fma(high.y, query[half].w, sum);
    }
    return sum;
  }
};
template <>
struct TopKChunk<false> {
  static constexpr uint32_t kElements = 4;
  static INFERSCALE_DEVICE float AddTo(float sum, const Vec16& chunk, const Float4* query) {
    sum = Fma(FloatOf(chunk.word[0]), query[0].x, sum);
    sum = Fma(FloatOf(chunk.word[1]), query[0].y, sum);
    sum = Fma(FloatOf(chunk.word[2]), query[0].z, sum);
    return Fma(FloatOf(chunk.word[3]), query[0].w, sum);
  }
};

// kRows rows two apart, from `row` on, that one group of 16 lanes scores together.
template <uint32_t kRows>
struct TopKRows {
  Vec16 chunk[kRows];

  // Bit r: the row takes part.
  static INFERSCALE_DEVICE uint32_t Wanted(const TopKSegment& search, uint32_t row, uint32_t end) {
    uint32_t wanted = 0;
    INFERSCALE_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) wanted |= (row + 2 * r < end ? 1U : 0U) << r;
    if (search.allowed == nullptr) return wanted;
    INFERSCALE_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t at = row + 2 * r;
      if (at < end && (LoadConstant(search.allowed + at / 64) >> (at % 64) & 1) == 0) {
        wanted &= ~(1U << r);
      }
    }
    return wanted;
  }

  // `stride` is that of two rows. What is not read must still be a number: it meets zeros of the
  // padded query.
  INFERSCALE_DEVICE void Load(const Vec16* from, uint32_t stride, uint32_t wanted) {
    INFERSCALE_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      chunk[r] = Vec16{};
      if ((wanted >> r & 1) != 0) chunk[r] = LoadStream(from + size_t{r * stride});
    }
  }
};

template <bool kHalf, uint32_t kThreads, uint32_t kRows, uint32_t kMaxSearches>
class TopKBody {
 public:
  using Params = TopKParams<kMaxSearches>;

  INFERSCALE_DEVICE explicit TopKBody(const Params& params) : p_(params) {}

  INFERSCALE_DEVICE void Run() {
    INFERSCALE_SHARED(Found, found);
    INFERSCALE_SHARED(Found, found_warps);
    const uint32_t index = FindSearch();
    const TopKSegment& segment = p_.segments[index];
    const uint32_t next = index + 1 < p_.searches ? p_.segments[index + 1].first_block : p_.blocks;
    const Share share{segment.count, next - segment.first_block, blockIdx.x - segment.first_block};
    uint64_t* const keys = p_.keys + uint64_t{segment.first_block} * p_.tile_rows;
    uint64_t* const best = p_.keys + uint64_t{p_.blocks} * p_.tile_rows +
                           size_t{segment.first_block} * kWarps;  // [blocks][kWarps]
    const uint32_t warps = share.blocks * kWarps;
    const bool by_warp = segment.count > kDirectRows && warps >= 2 * p_.k;

    Score(segment, share, keys, by_warp ? best + share.block * kWarps : nullptr);
    if (!IsLast(p_.tickets + index, share.blocks, found.count)) return;
    if (by_warp) {
      const uint64_t bound = Find<9>(best, warps, found_warps);
      FindInWarps(found_warps, bound, share, keys, found);
    } else {
      Find<6>(keys, segment.count, found);
    }
    Write(found, index);
  }

 private:
  static constexpr uint32_t kGroupLanes = 16;
  static constexpr uint32_t kWarps = kThreads / kWarpLanes;
  static constexpr uint32_t kStepRows = 2 * kRows;       // of a warp
  static constexpr uint32_t kDirectRows = 8192;          // keys of so many rows are all read
  static constexpr uint64_t kLeast = uint64_t{1} << 32;  // no key of a score is less
  static_assert(kWarps <= kTopKMaxWarps && kStepRows % 2 == 0);
  using Chunk = TopKChunk<kHalf>;
  using Rows = TopKRows<kRows>;

  // Step s of warp w of block b is rows [kStepRows * i, kStepRows * (i + 1)),
  // i = (s * kWarps + w) * blocks + b.
  struct Share {
    uint32_t count, blocks, block;
    INFERSCALE_DEVICE uint32_t Stride() const { return kWarps * blocks * kStepRows; }
  };

  // In no order, and then zeros. `count` may be more than there is room for.
  struct alignas(16) Found {
    static constexpr uint32_t kRoom = 512;
    static_assert(kRoom > kTopKMaxK);
    uint64_t keys[kRoom], bound;
    uint32_t count;

    INFERSCALE_DEVICE void Clear() {
      for (uint32_t i = threadIdx.x; i < kRoom; i += kThreads) keys[i] = 0;
      if (threadIdx.x == 0) count = 0;
      SyncThreads();
    }
    INFERSCALE_DEVICE void Add(uint64_t key) {
      const uint32_t at = AtomicAdd(&count, 1);
      if (at < kRoom) keys[at] = key;
    }
    // Calls use(key, how many keys are larger) for each key, of some thread.
    template <typename Use>
    INFERSCALE_DEVICE void ForEachRanked(Use use) const {
      constexpr uint32_t kTogether = 16;
      static_assert(kRoom % kTogether == 0);
      const uint32_t all = count < kRoom ? count : kRoom;
      for (uint32_t i = threadIdx.x; i < all; i += kThreads) {
        const uint64_t key = keys[i];
        uint32_t larger = 0;
        for (uint32_t first = 0; first < all; first += kTogether) {
          INFERSCALE_UNROLL
          for (uint32_t j = 0; j < kTogether; ++j) larger += keys[first + j] > key ? 1 : 0;
        }
        use(key, larger);
      }
    }
  };

  INFERSCALE_DEVICE uint32_t FindSearch() const {
    // Where it is if all searches have as many blocks; else a bracket grows from there.
    uint32_t low = static_cast<uint32_t>(uint64_t{blockIdx.x} * p_.searches / p_.blocks);
    uint32_t high = low + 1;
    for (uint32_t by = 1; p_.segments[low].first_block > blockIdx.x; by *= 2) {
      high = low;
      low = low > by ? low - by : 0;
    }
    for (uint32_t by = 1; high < p_.searches && p_.segments[high].first_block <= blockIdx.x;
         by *= 2) {
      low = high;
      high = high + by < p_.searches ? high + by : p_.searches;
    }
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (p_.segments[middle].first_block <= blockIdx.x ? low : high) = middle;
    }
    return low;
  }

  // keys[row], and the best of each warp.
  INFERSCALE_DEVICE void Score(const TopKSegment& search, const Share& share, uint64_t* keys,
                               uint64_t* best) const {
    INFERSCALE_DYNAMIC_SHARED(shared_bytes);
    auto* const query = reinterpret_cast<Float4*>(shared_bytes);
    const uint32_t chunks = p_.dims / Chunk::kElements;
    const uint32_t rounds = (chunks + kGroupLanes - 1) / kGroupLanes;
    const uint32_t group = threadIdx.x / kGroupLanes % 2, at = threadIdx.x % kGroupLanes;
    const uint32_t warp = threadIdx.x / kWarpLanes, two_rows = 2 * chunks, end = search.count;

    uint32_t step = (warp * share.blocks + share.block) * kStepRows;
    const auto* from = static_cast<const Vec16*>(search.rows) + size_t{step + group} * chunks + at;
    uint32_t wanted = Rows::Wanted(search, step + group, end);
    Rows next;
    next.Load(from, two_rows, at < chunks ? wanted : 0);
    LoadQuery(search.query, rounds * kGroupLanes, query);
    SyncThreads();
    uint64_t best_key = 0;
    for (; step < end; step += share.Stride()) {
      const uint32_t row = step + group, mine = wanted;
      float sum[kRows] = {};
      for (uint32_t round = 0; round < rounds; ++round) {
        const Rows now = next;
        const uint32_t chunk = round * kGroupLanes + at;
        if (round + 1 < rounds) {
          next.Load(from + (chunk - at + kGroupLanes), two_rows,
                    chunk + kGroupLanes < chunks ? wanted : 0);
        } else {
          from += size_t{share.Stride()} * chunks;
          wanted = Rows::Wanted(search, row + share.Stride(), end);
          next.Load(from, two_rows, at < chunks ? wanted : 0);
        }
        Float4 q[2];
        q[0] = query[chunk];
        if (kHalf) q[1] = query[rounds * kGroupLanes + chunk];
        INFERSCALE_UNROLL
        for (uint32_t r = 0; r < kRows; ++r) sum[r] = Chunk::AddTo(sum[r], now.chunk[r], q);
      }
      INFERSCALE_UNROLL
      for (uint32_t mask = kGroupLanes / 2; mask > 0; mask /= 2) {
        INFERSCALE_UNROLL
        for (uint32_t r = 0; r < kRows; ++r) sum[r] += ShuffleXor(sum[r], mask);
      }
      INFERSCALE_UNROLL
      for (uint32_t r = 0; r < kRows; ++r) {
        const uint32_t of = row + 2 * r;
        if (at == r && of < end) {
          const uint64_t key = (mine >> r & 1) != 0 ? TopKKey(sum[r], of) : 0;
          keys[of] = key;
          best_key = key > best_key ? key : best_key;
        }
      }
    }
    if (best == nullptr) return;
    for (uint32_t mask = kWarpLanes / 2; mask > 0; mask /= 2) {
      const uint64_t other = ShuffleXor(best_key, mask);
      best_key = other > best_key ? other : best_key;
    }
    if (threadIdx.x % kWarpLanes == 0) best[warp] = best_key;
  }

  // As lanes read it: the first four elements of every chunk, then, of f16, the other four.
  INFERSCALE_DEVICE void LoadQuery(const float* from, uint32_t padded, Float4* query) const {
    const uint32_t fours = p_.dims / 4;
    for (uint32_t i = threadIdx.x; i < padded * (kHalf ? 2 : 1); i += kThreads) {
      const uint32_t to = kHalf ? i % 2 * padded + i / 2 : i;
      Float4 four{0, 0, 0, 0};
      if (i < fours) {
        four = {LoadConstant(from + 4 * i), LoadConstant(from + 4 * i + 1),
                LoadConstant(from + 4 * i + 2), LoadConstant(from + 4 * i + 3)};
      }
      query[to] = four;
    }
  }

  // Whether all other blocks of the search are done; then what they wrote can be read.
  static INFERSCALE_DEVICE bool IsLast(uint32_t* ticket, uint32_t blocks, uint32_t& last) {
    SyncThreads();
    if (blocks == 1) return true;
    if (threadIdx.x == 0) {
      ThreadFence();
      last = AtomicInc(ticket, blocks - 1) == blocks - 1 ? 1 : 0;
      ThreadFence();
    }
    SyncThreads();
    return last != 0;
  }

  // Keys that a thread read.
  template <uint32_t kPairs>
  struct Held {
    struct alignas(16) Pair {
      uint64_t key[2];
    };
    Pair pair[kPairs];

    // From keys + at on, where at is even, and what follows `step` further; 0 from `end` on.
    INFERSCALE_DEVICE void Load(const uint64_t* keys, uint32_t at, uint32_t step, uint32_t end) {
      INFERSCALE_UNROLL
      for (uint32_t i = 0; i < kPairs; ++i, at += step) {
        pair[i] = Pair{};
        if (at < end) pair[i] = LoadCoherent(reinterpret_cast<const Pair*>(keys + at));
        if (at + 1 >= end) pair[i].key[1] = 0;
      }
    }
    template <typename Use>
    INFERSCALE_DEVICE void ForEach(Use use) const {
      INFERSCALE_UNROLL
      for (uint32_t i = 0; i < 2 * kPairs; ++i) use(pair[i / 2].key[i % 2]);
    }
  };

  // Puts at least the k best of the keys into `found`, and all that reach the bound it returns. As
  // long as a thread can hold its keys in kPairs, they are read once.
  template <uint32_t kPairs>
  INFERSCALE_DEVICE uint64_t Find(const uint64_t* keys, uint32_t count, Found& found) const {
    constexpr uint32_t kBatch = 2 * kPairs * kThreads;
    Held<kPairs> held;
    uint32_t held_base = 1;  // of none
    const auto for_each = [&](auto use) {
      for (uint32_t base = 0; base < count; base += kBatch) {
        if (base != held_base) held.Load(keys, base + 2 * threadIdx.x, 2 * kThreads, count);
        held_base = base;
        held.ForEach(use);
      }
    };
    uint64_t best = 0;
    for_each([&](uint64_t key) { best = key > best ? key : best; });
    return Collect(Bound(best), found, [&](uint64_t bound) {
      if (best < bound) return;
      for_each([&](uint64_t key) {
        if (key >= bound) found.Add(key);
      });
    });
  }

  // The same of the keys of those warps' rows.
  INFERSCALE_DEVICE void FindInWarps(const Found& warps, uint64_t bound, const Share& share,
                                     const uint64_t* keys, Found& found) const {
    const uint32_t stride = share.Stride(), steps = (share.count + stride - 1) / stride;
    Collect(bound, found, [&](uint64_t least) {
      for (uint32_t i = threadIdx.x; i < warps.count * steps; i += kThreads) {
        const uint32_t row = TopKKeyRow(warps.keys[i / steps]);  // one of the warp's
        Held<kStepRows / 2> held;
        held.Load(keys, row % stride / kStepRows * kStepRows + i % steps * stride, 2, share.count);
        held.ForEach([&](uint64_t key) {
          if (key >= least) found.Add(key);
        });
      }
    });
  }

  // The largest bound that `best` of at least k threads reaches, or less if few more reach that.
  INFERSCALE_DEVICE uint64_t Bound(uint64_t best) const {
    if (SyncThreadsCount(best != 0) < p_.k) return kLeast;
    uint64_t bound = 0;
    for (uint64_t bit = uint64_t{1} << 63; bit != 0; bit /= 2) {
      const uint32_t reach = SyncThreadsCount(best >= (bound | bit));
      if (reach < p_.k) continue;
      bound |= bit;
      if (reach <= p_.k + p_.k / 8) break;
    }
    return bound > kLeast ? bound : kLeast;
  }

  // Calls add(bound) with higher and higher bounds until what it adds has room; returns the last.
  template <typename Add>
  INFERSCALE_DEVICE uint64_t Collect(uint64_t bound, Found& found, Add add) const {
    for (;;) {
      found.Clear();
      add(bound);
      SyncThreads();
      if (found.count <= Found::kRoom) return bound;
      found.ForEachRanked([&](uint64_t key, uint32_t larger) {
        if (larger + 1 == p_.k) found.bound = key;
      });
      SyncThreads();
      bound = found.bound;
    }
  }

  INFERSCALE_DEVICE void Write(const Found& found, uint32_t index) const {
    const size_t to = size_t{index} * p_.k;
    found.ForEachRanked([&](uint64_t key, uint32_t rank) {
      if (rank >= p_.k) return;
      p_.out_rows[to + rank] = TopKKeyRow(key);
      p_.out_scores[to + rank] = TopKKeyScore(key);
    });
    for (uint32_t rank = found.count + threadIdx.x; rank < p_.k; rank += kThreads) {
      p_.out_rows[to + rank] = 0xFFFFFFFFU;
      p_.out_scores[to + rank] = FloatOf(0xFF800000U);  // -infinity
    }
  }

  const Params& p_;
};

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_TOPK_TOPK_CUDA_CUH_
