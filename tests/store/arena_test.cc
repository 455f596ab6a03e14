#include "store/arena.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "sample.h"

namespace inferscale {
namespace {

std::shared_ptr<Arena> MakeArena(uint64_t budget, uint64_t tenant_budget = 0) {
  return Arena::Create(budget, tenant_budget).value();
}

// Brings sample `n` in and returns its pin, or nothing if there is no room.
std::shared_ptr<const PinnedKv> Load(Arena& arena, uint64_t n) {
  const Sample sample = MakeSample(n);
  auto acquired =
      arena.Acquire(sample.info.key, sample.info.tenant, sample.payload.size(), arena.epoch());
  if (!acquired) return nullptr;
  if (acquired->pin != nullptr) return acquired->pin;
  if (acquired->slot == nullptr) return nullptr;
  std::copy(sample.payload.begin(), sample.payload.end(), acquired->slot->bytes().begin());
  return acquired->slot->Publish(sample.info);
}

TEST(Arena, AnUnusedBudgetCostsNothing) {
  const auto arena = MakeArena(uint64_t{64} << 30);
  EXPECT_TRUE(IsSample(*Load(*arena, 1), 1));
}

TEST(Arena, WithoutABudgetNothingFits) {
  const auto arena = MakeArena(0);
  const auto acquired = arena->Acquire(SampleKey(1), "t", 1, arena->epoch());
  ASSERT_FALSE(acquired);
  EXPECT_EQ(acquired.error().code, Code::kExhausted);
}

TEST(Arena, AFullOneMakesRoomButNeverOfPins) {
  const auto arena = MakeArena(64 << 10);
  const auto kept = Load(*arena, 1);
  for (uint64_t n = 2; n < 100; ++n) ASSERT_TRUE(IsSample(*Load(*arena, n), n));
  EXPECT_TRUE(IsSample(*kept, 1));
  EXPECT_GT(arena->stats().evictions, 0U);
  EXPECT_LE(arena->stats().bytes, arena->stats().budget);
}

TEST(Arena, AFailedFillingIsNobodys) {
  const auto arena = MakeArena(64 << 10);
  auto acquired = arena->Acquire(SampleKey(1), "t", 5000, arena->epoch());
  ASSERT_TRUE(acquired && acquired->slot != nullptr);
  EXPECT_EQ(arena->stats().pinned_bytes, 8192U);
  acquired->slot.reset();
  EXPECT_EQ(arena->stats().bytes, 0U);
  EXPECT_TRUE(IsSample(*Load(*arena, 1), 1));
}

TEST(Arena, WhatIsForgottenWhileItIsFilledIsNotPublished) {
  const auto arena = MakeArena(64 << 10);
  const Sample sample = MakeSample(1);
  const uint64_t epoch = arena->epoch();
  auto acquired = arena->Acquire(sample.info.key, "t", sample.payload.size(), epoch);
  arena->Forget({&sample.info.key, 1});
  EXPECT_EQ(acquired->slot->Publish(sample.info), nullptr);
  EXPECT_EQ(arena->stats().bytes, 0U);
  // What was looked up before the erasure must not come in after it.
  const auto late = arena->Acquire(sample.info.key, "t", sample.payload.size(), epoch);
  ASSERT_TRUE(late);
  EXPECT_TRUE(late->pin == nullptr && late->slot == nullptr);
}

// A slab from elsewhere, and how often it was asked for.
SlabSource Elsewhere(int& asked, bool refuse) {
  return [&asked, refuse](uint64_t bytes) -> Result<std::shared_ptr<std::byte>> {
    ++asked;
    if (refuse) return Fail(Code::kExhausted, "no {} bytes", bytes);
    return std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>());
  };
}

TEST(Arena, ARefusedSlabIsReplacedByAnOrdinaryOne) {
  for (const bool refuse : {false, true}) {
    int asked = 0;
    const auto arena = Arena::Create(64 << 10, 0, Elsewhere(asked, refuse)).value();
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(arena->stats().slab_refused, refuse);
    EXPECT_TRUE(IsSample(*Load(*arena, 1), 1));
  }
}

class ArenaWiping : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, ArenaWiping, testing::Bool());

TEST_P(ArenaWiping, ForgottenBytesAreWiped) {
  int asked = 0;
  const auto arena =
      Arena::Create(64 << 10, 0, GetParam() ? Elsewhere(asked, false) : SlabSource()).value();
  auto pin = Load(*arena, 3);
  const std::byte* data = pin->view().data;
  const size_t size = pin->view().SizeBytes();
  arena->Forget(std::vector<Hash128>{SampleKey(3)});
  EXPECT_TRUE(IsSample(*pin, 3));
  pin.reset();
  // The slab is still mapped while the arena lives.
  EXPECT_TRUE(std::all_of(data, data + size, [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Arena, ThreadsShareOneFilling) {
  const auto arena = MakeArena(128 << 10);
  std::atomic<int> fillings = 0;
  constexpr uint64_t kRecords = 5;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kRecords; ++i) {
        const uint64_t n = 1 + (i + static_cast<uint64_t>(t)) % kRecords;
        const Sample sample = MakeSample(n);
        auto acquired = arena->Acquire(sample.info.key, "t", sample.payload.size(), 0);
        ASSERT_TRUE(acquired);
        auto pin = acquired->pin;
        if (acquired->slot != nullptr) {
          ++fillings;
          std::copy(sample.payload.begin(), sample.payload.end(), acquired->slot->bytes().begin());
          pin = acquired->slot->Publish(sample.info);
        }
        ASSERT_NE(pin, nullptr);
        EXPECT_TRUE(IsSample(*pin, n));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(fillings, static_cast<int>(kRecords));
}

}  // namespace
}  // namespace inferscale
