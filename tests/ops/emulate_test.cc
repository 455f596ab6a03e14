#include "ops/cuda/emulate.h"

#include <gmock/gmock.h>

#include <limits>
#include <numeric>
#include <vector>

#include "../kv/seed.h"
#include "ops/cuda/portable.h"

namespace inferscale::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const Launch& launch, const std::function<void()>& body) {
  try {
    Emulate(launch, body);
  } catch (const EmulationError& error) {
    return error.what();
  }
  return "none";
}

uint32_t GlobalThread() { return blockIdx.x * blockDim.x + threadIdx.x; }

TEST(Emulate, RunsEveryThreadOnce) {
  const Launch launch{.grid = {3, 2, 2}, .block = {8, 4, 2}, .seed = 5};
  std::vector<int> seen(3 * 2 * 2 * 8 * 4 * 2);
  const auto count = [&] {
    const uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    ++seen[block * 64 + thread];
  };
  Emulate(launch, count);
  EmulateIndependent(launch, count);
  EXPECT_THAT(seen, ::testing::Each(2));
}

// Each round reads what the round before wrote in another thread.
TEST(Emulate, BarriersOrderSharedMemory) {
  SCOPED_TRACE(TestSeed());
  std::vector<uint32_t> out(4 * 96);
  Emulate({.grid = {4}, .block = {96}, .seed = TestSeed()}, [&] {
    INFERSCALE_SHARED(uint32_t[2][96], values);
    values[0][threadIdx.x] = threadIdx.x;
    for (uint32_t round = 0; round < 10; ++round) {
      SyncThreads();
      values[(round + 1) % 2][threadIdx.x] = values[round % 2][(threadIdx.x + 1) % 96] + 1;
    }
    SyncThreads();
    out[GlobalThread()] = values[0][threadIdx.x];
  });
  for (uint32_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], (i % 96 + 10) % 96 + 10);
}

TEST(Emulate, SharedMemoryIsPoisonedAndFresh) {
  std::vector<uint32_t> bad(2);
  Emulate({.grid = {2}, .block = {32}, .dynamic_shared = 128}, [&] {
    INFERSCALE_SHARED(uint32_t, first);
    INFERSCALE_SHARED(uint32_t, second);
    INFERSCALE_DYNAMIC_SHARED(bytes);
    auto* const words = reinterpret_cast<uint32_t*>(bytes);
    if (words[threadIdx.x] != 0xFFFFFFFF || first != 0xFFFFFFFF || second != 0xFFFFFFFF) {
      AtomicAdd(&bad[blockIdx.x], 1);
    }
    SyncThreads();
    words[threadIdx.x] = 1;
    if (threadIdx.x == 0) first = 2;
    SyncThreads();
    if (second != 0xFFFFFFFF) AtomicAdd(&bad[blockIdx.x], 1);
  });
  EXPECT_THAT(bad, ::testing::Each(0U));
}

TEST(Emulate, WarpFunctionsExchange) {
  SCOPED_TRACE(TestSeed());
  std::vector<float> sums(64);
  std::vector<uint32_t> ballots(64), from(64), any(64);
  Emulate({.block = {64}, .seed = TestSeed()}, [&] {
    const uint32_t thread = threadIdx.x;
    auto sum = static_cast<float>(thread);
    for (uint32_t mask = 16; mask > 0; mask /= 2) sum += ShuffleXor(sum, mask);
    sums[thread] = sum;
    ballots[thread] = Ballot(thread % 3 == 0);
    from[thread] = Shuffle(thread, 7);
    any[thread] = SyncThreadsOr(thread == 40) ? 1 : 0;
    any[thread] += SyncThreadsOr(false) ? 2 : 0;
  });
  for (uint32_t thread = 0; thread < 64; ++thread) {
    EXPECT_EQ(sums[thread], thread < 32 ? 496 : 496 + 1024);
    EXPECT_EQ(from[thread], thread / 32 * 32 + 7);
    EXPECT_EQ(any[thread], 1U);
    uint32_t want = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      want |= static_cast<uint32_t>((thread / 32 * 32 + lane) % 3 == 0) << lane;
    }
    EXPECT_EQ(ballots[thread], want);
  }
}

TEST(Emulate, OrdersDifferBySeed) {
  const auto order = [](uint32_t seed) {
    std::vector<uint32_t> threads;
    Emulate({.grid = {2}, .block = {32}, .seed = seed}, [&] { threads.push_back(GlobalThread()); });
    return threads;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(Emulate, ReportsWhoMissesABarrier) {
  EXPECT_THAT(ErrorOf({.block = {64}},
                      [] {
                        if (threadIdx.x != 9) SyncThreads();
                      }),
              AllOf(HasSubstr("SyncThreads"), HasSubstr("63 of 64"), HasSubstr("emulate_test.cc")));
  EXPECT_THAT(ErrorOf({.block = {64}},
                      [] {
                        if (threadIdx.x < 32) SyncThreads();
                        if (threadIdx.x != 50) SyncWarp();
                      }),
              AllOf(HasSubstr("SyncThreads"), HasSubstr("SyncWarp")));
}

TEST(Emulate, ReportsDivergence) {
  const auto two_calls = [] {
    if (threadIdx.x < 16) {
      ShuffleXor(1, 1);
    } else {
      ShuffleXor(1, 2);
    }
  };
  const auto half = [] {
    if (threadIdx.x % 2 == 0) Ballot(true);
  };
  EXPECT_THAT(ErrorOf({.block = {32}}, two_calls),
              AllOf(HasSubstr("while thread"), HasSubstr("ShuffleXor")));
  EXPECT_THAT(ErrorOf({.block = {64}}, half), HasSubstr("16 of 32"));
  EXPECT_THAT(ErrorOf({.block = {40}}, [] { ShuffleXor(1, 8); }), HasSubstr("does not exist"));
  EXPECT_THROW(EmulateIndependent({.block = {32}}, [] { SyncThreads(); }), EmulationError);
}

TEST(Emulate, AtomicIncWrapsAround) {
  uint32_t ticket = 0;
  std::vector<uint32_t> drawn;
  Emulate({.grid = {7}}, [&] { drawn.push_back(AtomicInc(&ticket, 6)); });
  std::vector<uint32_t> want(7);
  std::iota(want.begin(), want.end(), 0U);
  EXPECT_EQ(drawn, want);
  EXPECT_EQ(ticket, 0U);
}

TEST(Portable, PairsConvertLikeElements) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto element = static_cast<uint16_t>(bits);
    const Float2 f16 = F16PairToFloat(bits | 0x3C000000U);
    EXPECT_TRUE(BitsOf(f16.x) == BitsOf(F16ToFloat(element)) && f16.y == 1) << bits;
    const Float2 bf16 = Bf16PairToFloat(bits << 16 | 0x3F80U);
    EXPECT_TRUE(BitsOf(bf16.y) == BitsOf(Bf16ToFloat(element)) && bf16.x == 1) << bits;
    if (bf16.y == bf16.y) {
      EXPECT_EQ(FloatToBf16Pair(1, bf16.y), bits << 16 | 0x3F80U);
    }
    if (f16.x == f16.x) {
      EXPECT_EQ(FloatToF16Pair(f16.x, 1), bits | 0x3C000000U);
    }
  }
  EXPECT_EQ(FloatToF8Pair(1, -2), 0xC038);
  EXPECT_EQ(F8PairToFloat(0xC038).y, -2);
}

}  // namespace
}  // namespace inferscale::cuda
