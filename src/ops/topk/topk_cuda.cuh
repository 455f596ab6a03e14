// The body of topk on CUDA, for device and host (contract: topk.h; cutting: topk_plan.h).
//
// One pass over the rows: 16 lanes read a row in pieces of 16 bytes, kRows rows at a time, while
// the next pieces are on their way. A tile's scores stay in shared memory as 64-bit keys whose
// order is the order of results, and are sorted there. The order in which a row is summed depends
// on dims and dtype alone, so equal rows have equal scores wherever they lie.
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
    INFERSCALE_SHARED(uint64_t[kTopKMaxTile], keys);
    INFERSCALE_SHARED(uint32_t[2], shared);  // whether this block is the last; keys in the buffer
    const uint32_t index = FindSearch();
    const TopKSegment& segment = p_.segments[index];
    const uint32_t next = index + 1 < p_.searches ? p_.segments[index + 1].first_block : p_.blocks;
    const uint32_t tiles = next - segment.first_block;
    const uint32_t tile = blockIdx.x - segment.first_block;
    const uint32_t first = tile * p_.tile_rows;
    const uint32_t left = segment.count - first;
    const uint32_t count = left < p_.tile_rows ? left : p_.tile_rows;

    Score(segment, first, first + count, keys);
    Sort(keys, count);
    if (tiles == 1) return Write(keys, count, index);

    uint64_t* const candidates = p_.candidates + uint64_t{segment.first_block} * p_.k;
    for (uint32_t rank = threadIdx.x; rank < p_.k; rank += kThreads) {
      candidates[uint64_t{rank} * tiles + tile] = rank < count ? keys[rank] : 0;
    }
    ThreadFence();
    SyncThreads();
    if (threadIdx.x == 0) {
      shared[0] = AtomicInc(p_.tickets + index, tiles - 1) == tiles - 1 ? 1 : 0;
      shared[1] = 0;
    }
    SyncThreads();
    if (shared[0] == 0) return;
    ThreadFence();
    Write(keys, Merge(candidates, tiles, keys, shared[1]), index);
  }

 private:
  static constexpr uint32_t kGroupLanes = 16;
  static constexpr uint32_t kStepRows = 2 * kRows;  // of a warp
  static constexpr uint32_t kBlockRows = kThreads / kWarpLanes * kStepRows;
  static constexpr uint32_t kBatch = 512;  // candidates that are looked at together
  static_assert(kTopKMaxK + kBatch <= kTopKMaxTile && kBatch % kThreads == 0);
  using Chunk = TopKChunk<kHalf>;
  using Rows = TopKRows<kRows>;

  INFERSCALE_DEVICE uint32_t FindSearch() const {
    uint32_t low = 0, high = p_.searches;
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (p_.segments[middle].first_block <= blockIdx.x ? low : high) = middle;
    }
    return low;
  }

  // keys[i] of row first + i.
  INFERSCALE_DEVICE void Score(const TopKSegment& search, uint32_t first, uint32_t end,
                               uint64_t* keys) const {
    INFERSCALE_DYNAMIC_SHARED(shared_bytes);
    auto* const query = reinterpret_cast<Float4*>(shared_bytes);
    const uint32_t chunks = p_.dims / Chunk::kElements;
    const uint32_t rounds = (chunks + kGroupLanes - 1) / kGroupLanes;
    const uint32_t group = threadIdx.x / kGroupLanes % 2, at = threadIdx.x % kGroupLanes;
    const uint32_t stride = 2 * chunks;

    uint32_t step = first + threadIdx.x / kWarpLanes * kStepRows;
    const auto* from = static_cast<const Vec16*>(search.rows) + size_t{step + group} * chunks + at;
    uint32_t wanted = Rows::Wanted(search, step + group, end);
    Rows next;
    next.Load(from, stride, at < chunks ? wanted : 0);
    LoadQuery(search.query, rounds * kGroupLanes, query);
    SyncThreads();
    for (; step < end; step += kBlockRows) {
      const uint32_t row = step + group, mine = wanted;
      float sum[kRows] = {};
      for (uint32_t round = 0; round < rounds; ++round) {
        const Rows now = next;
        const uint32_t chunk = round * kGroupLanes + at;
        if (round + 1 < rounds) {
          next.Load(from + (chunk - at + kGroupLanes), stride,
                    chunk + kGroupLanes < chunks ? wanted : 0);
        } else {
          from += size_t{kBlockRows} * chunks;
          wanted = Rows::Wanted(search, row + kBlockRows, end);
          next.Load(from, stride, at < chunks ? wanted : 0);
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
        if (at == r && of < end) keys[of - first] = (mine >> r & 1) != 0 ? TopKKey(sum[r], of) : 0;
      }
    }
    SyncThreads();
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

  // Bitonic, best first; pads keys with 0 to a power of two. The block must have met since keys
  // were written.
  static INFERSCALE_DEVICE void Sort(uint64_t* keys, uint32_t count) {
    uint32_t size = 2;
    while (size < count) size *= 2;
    for (uint32_t i = count + threadIdx.x; i < size; i += kThreads) keys[i] = 0;
    SyncThreads();
    for (uint32_t run = 2; run <= size; run *= 2) {
      for (uint32_t stride = run / 2; stride > 0; stride /= 2) {
        for (uint32_t pair = threadIdx.x; pair < size / 2; pair += kThreads) {
          const uint32_t low = 2 * pair - (pair & (stride - 1)), high = low + stride;
          const uint64_t a = keys[low], b = keys[high];
          if ((a < b) == ((low & run) == 0)) {
            keys[low] = b;
            keys[high] = a;
          }
        }
        // Up to a stride of 32, a warp's 32 pairs are 64 neighbours that no other warp touches.
        const uint32_t next = stride > 1 ? stride / 2 : run;
        if (stride > kWarpLanes || next > kWarpLanes) {
          SyncThreads();
        } else {
          SyncWarp();
        }
      }
    }
    SyncThreads();
  }

  // Leaves the k best of `tiles` sorted lists in keys, sorted, and returns how many there are.
  // Goes by rank, so that it can stop when none of `tiles` candidates in a row was good enough.
  INFERSCALE_DEVICE uint32_t Merge(const uint64_t* candidates, uint32_t tiles, uint64_t* keys,
                                   uint32_t& filled) const {
    const uint64_t total = uint64_t{p_.k} * tiles;
    uint64_t threshold = 0;
    uint32_t count = 0, sorted = 0, idle = 0;
    for (uint64_t base = 0; base < total && idle < tiles; base += kBatch) {
      bool found = false;
      INFERSCALE_UNROLL
      for (uint32_t i = 0; i < kBatch / kThreads; ++i) {
        const uint64_t at = base + i * kThreads + threadIdx.x;
        const uint64_t key = at < total ? LoadCoherent(candidates + at) : 0;
        found |= Append(key, key > threshold, keys, filled);
      }
      idle = SyncThreadsOr(found) ? 0 : idle + kBatch;
      count = filled;
      SyncThreads();
      if (count > sorted && (threshold == 0 || count > kTopKMaxTile - kBatch)) {
        Sort(keys, count);
        count = sorted = count < p_.k ? count : p_.k;
        threshold = count == p_.k ? keys[count - 1] : 0;
        if (threadIdx.x == 0) filled = count;
        SyncThreads();
      }
    }
    if (count > sorted) Sort(keys, count);
    return count;
  }

  // Of all lanes of a warp. Returns whether any lane had something.
  static INFERSCALE_DEVICE bool Append(uint64_t key, bool good, uint64_t* keys, uint32_t& filled) {
    const uint32_t votes = Ballot(good);
    if (votes == 0) return false;
    const uint32_t lane = threadIdx.x % kWarpLanes;
    uint32_t place = 0;
    if (lane == 0) place = AtomicAdd(&filled, CountBits(votes));
    place = Shuffle(place, 0) + CountBits(votes & ((1U << lane) - 1));
    if (good) keys[place] = key;
    return true;
  }

  INFERSCALE_DEVICE void Write(const uint64_t* keys, uint32_t count, uint32_t index) const {
    for (uint32_t rank = threadIdx.x; rank < p_.k; rank += kThreads) {
      const uint64_t key = rank < count ? keys[rank] : 0;
      const size_t to = size_t{index} * p_.k + rank;
      p_.out_rows[to] = key != 0 ? TopKKeyRow(key) : 0xFFFFFFFFU;
      p_.out_scores[to] = key != 0 ? TopKKeyScore(key) : FloatOf(0xFF800000U);  // -infinity
    }
  }

  const Params& p_;
};

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_TOPK_TOPK_CUDA_CUH_
