#include "store/slab_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace inferscale {
namespace {

TEST(SlabAllocator, AgreesWithAMapOfBytes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 30; ++round) {
    const uint64_t size = 1 + random() % 300;
    SlabAllocator allocator(size);
    std::vector<bool> used(size);
    std::vector<std::pair<uint64_t, uint64_t>> held;
    for (int step = 0; step < 300; ++step) {
      if (held.empty() || random() % 5 < 3) {
        const uint64_t bytes = 1 + random() % 40;
        // The shortest free run that is long enough, the first of equals.
        std::optional<uint64_t> best;
        uint64_t best_run = 0;
        for (uint64_t at = 0; at < size;) {
          const uint64_t begin = at;
          while (at < size && !used[at]) ++at;
          const uint64_t run = at - begin;
          if (run >= bytes && (!best || run < best_run)) best = begin, best_run = run;
          while (at < size && used[at]) ++at;
        }
        const auto offset = allocator.Allocate(bytes);
        ASSERT_EQ(offset, best);
        if (!offset) continue;
        std::fill_n(used.begin() + static_cast<ptrdiff_t>(*offset), bytes, true);
        held.emplace_back(*offset, bytes);
      } else {
        std::swap(held[random() % held.size()], held.back());
        const auto [offset, bytes] = held.back();
        held.pop_back();
        allocator.Free(offset, bytes);
        std::fill_n(used.begin() + static_cast<ptrdiff_t>(offset), bytes, false);
      }
      ASSERT_EQ(allocator.free_bytes(),
                static_cast<uint64_t>(std::count(used.begin(), used.end(), false)));
    }
    for (const auto& [offset, bytes] : held) allocator.Free(offset, bytes);
    EXPECT_EQ(allocator.Allocate(size), 0U) << "what was given back is one range again";
  }
}

TEST(SlabAllocator, AnEmptySlabHasNoPlace) { EXPECT_FALSE(SlabAllocator(0).Allocate(1)); }

}  // namespace
}  // namespace inferscale
