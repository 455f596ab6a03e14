// From one paged cache into a record and out of it into another, all through the C interface.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine_cache.h"
#include "ops/element.h"

namespace inferscale {
namespace {

class RoundTrip : public testing::TestWithParam<Place> {};
INSTANTIATE_TEST_SUITE_P(Places, RoundTrip, testing::Values(Place::kHost, Place::kDevice),
                         [](const auto& at) {
                           return at.param == Place::kHost ? "Host" : "Device";
                         });

// A model, its caches, and records that were captured out of them.
struct Trip {
  Trip(Random& seed, World& in)
      : random(seed), world(in), model(seed, in.place), owner(in.Owner(model.c_shape())) {}

  struct Record {
    inferscale_key key;
    std::vector<int32_t> tokens;
    std::vector<std::byte> bytes;
  };

  std::vector<std::unique_ptr<EngineCache>> Caches(uint32_t tokens) {
    std::vector<std::unique_ptr<EngineCache>> caches;
    for (size_t g = 0; g < model.groups.size(); ++g) {
      caches.push_back(std::make_unique<EngineCache>(random, model, g, tokens));
      caches.back()->Open(world.device.get());
    }
    return caches;
  }

  inferscale_capture* Begin(const Record& record) {
    inferscale_capture* capture = nullptr;
    EXPECT_EQ(inferscale_capture_open(world.tier.get(), &owner, &record.key, record.tokens.data(),
                                      static_cast<uint32_t>(record.tokens.size()), &capture,
                                      &world.error),
              INFERSCALE_OK)
        << world.error.message;
    return capture;
  }

  // In pieces, in any order, from caches full of numbers.
  void Capture(uint64_t n) {
    Record& record = records.emplace_back();
    record.key = Key(n);
    record.tokens.resize(random.Between<size_t>(1, 40));
    for (int32_t& token : record.tokens) token = random.Between(0, 50'000);
    const auto count = static_cast<uint32_t>(record.tokens.size());
    record.bytes.resize(count * model.shape.TokenBytes());
    const MutableFactKvView want = {model.shape, count, record.bytes.data()};
    inferscale_capture* capture = Begin(record);
    ASSERT_NE(capture, nullptr);
    const auto caches = Caches(count + 20);
    const auto position = random.Between<int32_t>(0, 100);
    for (const auto& cache : caches) {
      cache->FillWithNumbers(random);
      const auto first = random.Between<uint32_t>(0, 20);
      const auto cut = random.Between<uint32_t>(0, count);
      EngineSpan pieces[] = {{cut, count - cut, position + static_cast<int32_t>(cut), first + cut},
                             {0, cut, position, first}};
      for (const EngineSpan& piece : pieces) {
        cache->Capture(want, piece);
        const inferscale_capture_span span = {capture, piece.record_token, piece.tokens,
                                              piece.position, piece.page_token};
        ASSERT_EQ(inferscale_capture_spans(cache->get(), &span, 1, cache->pages.data(),
                                           cache->page_count, world.stream, &world.error),
                  INFERSCALE_OK)
            << world.error.message;
      }
    }
    std::vector<std::byte> got(record.bytes.size());
    ASSERT_EQ(inferscale_capture_read(capture, world.stream, got.data(), got.size(), nullptr),
              INFERSCALE_OK);
    ExpectElementsNear(got, record.bytes, model.shape.dtype);
    record.bytes = std::move(got);  // to the last bit what is stored
    ASSERT_EQ(inferscale_capture_commit(capture, world.stream, &world.error), INFERSCALE_OK)
        << world.error.message;
    world.Sync();  // the caches go
  }

  void Verify() {
    std::vector<inferscale_claim> claims;
    for (const Record& record : records) {
      const auto first = random.Between<uint32_t>(0, static_cast<uint32_t>(record.tokens.size()));
      claims.push_back({record.key, first, static_cast<uint32_t>(record.tokens.size()) - first,
                        record.tokens.data() + first});
    }
    std::vector<int32_t> codes(claims.size(), -1);
    ASSERT_EQ(
        inferscale_store_verify(world.store.get(), &owner, claims.data(),
                                static_cast<uint32_t>(claims.size()), codes.data(), &world.error),
        INFERSCALE_OK);
    EXPECT_EQ(codes, std::vector<int32_t>(claims.size(), INFERSCALE_OK));
  }

  // Parts of all records, side by side, one launch for each cache.
  void Inject() {
    std::vector<inferscale_key> keys;
    for (const Record& record : records) keys.push_back(record.key);
    const LeaseHandle lease = world.Lease(owner, keys);
    ASSERT_EQ(world.Settle(lease.get(), keys.size()),
              std::vector<int32_t>(keys.size(), INFERSCALE_OK));
    uint32_t tokens = 0;
    for (const Record& record : records) tokens += static_cast<uint32_t>(record.tokens.size());
    const auto caches = Caches(tokens + 20);
    std::vector<std::vector<std::byte>> want;
    for (const auto& cache : caches) {
      want.push_back(cache->bytes);
      std::vector<inferscale_inject_span> spans;
      auto at = random.Between<uint32_t>(0, 20);
      for (uint32_t i = 0; i < records.size(); ++i) {
        const auto count = static_cast<uint32_t>(records[i].tokens.size());
        const auto first = random.Between<uint32_t>(0, count);
        const auto position = random.Between<int32_t>(0, 150);
        const auto moved = random.Between<uint32_t>(0, count - first);
        cache->Inject({model.shape, count, records[i].bytes.data()}, {first, moved, position, at},
                      want.back());
        spans.push_back({lease.get(), i, first, moved, position, at});
        at += moved;
      }
      ASSERT_EQ(
          inferscale_inject(cache->get(), spans.data(), static_cast<uint32_t>(spans.size()),
                            cache->pages.data(), cache->page_count, world.stream, &world.error),
          INFERSCALE_OK)
          << world.error.message;
    }
    world.Sync();
    for (size_t i = 0; i < caches.size(); ++i) caches[i]->ExpectNear(want[i]);
  }

  Random& random;
  World& world;
  EngineModel model;
  inferscale_owner owner;
  std::vector<Record> records;
};

TEST_P(RoundTrip, WhatWasCapturedIsInjected) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    World world(GetParam());
    Trip trip(random, world);
    SCOPED_TRACE(trip.model.Describe());
    const auto count = random.Between<uint64_t>(1, 5);
    for (uint64_t n = 1; n <= count && !HasFailure(); ++n) trip.Capture(n);
    ASSERT_EQ(inferscale_tier_flush(world.tier.get(), &world.error), INFERSCALE_OK)
        << world.error.message;
    EXPECT_EQ(world.Stats().captures_stored, count);
    EXPECT_EQ(world.Stats().capture_bytes, 0U);
    // From memory, from the disk, and from where they were leased to.
    trip.Verify();
    trip.Inject();
    world.Reopen();
    trip.Verify();
    trip.Inject();
    trip.Inject();
    world.Sync();
    EXPECT_EQ(world.Stats().disk_reads, count);
    EXPECT_EQ(world.Stats().device_pinned_bytes, 0U);
    EXPECT_EQ(world.Stats().host_pinned_bytes, 0U);
  }
}

// Elements of an fp8 cache times their scale are the numbers that are captured.
TEST(RoundTripF8, ScalesAreTheCaches) {
  World world(Place::kDevice);
  constexpr uint32_t kDim = 64, kHeads = 2, kTokens = 4;
  const inferscale_shape shape = {1, kHeads, kDim, INFERSCALE_BF16};
  const inferscale_owner owner = world.Owner(shape);
  std::vector<uint8_t> bytes(2 * kTokens * kHeads * kDim, 0x38);  // 1.0
  const uint64_t k_base = reinterpret_cast<uint64_t>(bytes.data());
  const uint64_t v_base = k_base + bytes.size() / 2;
  const float k_scale[] = {2, 3}, v_scale[] = {0.5, 4};
  inferscale_cache_spec spec = {};
  spec.size = sizeof(spec);
  spec.layers = 1;
  spec.heads = kHeads;
  spec.dim = kDim;
  spec.page_tokens = kTokens;
  spec.pages = 1;
  spec.dtype = INFERSCALE_F8_E4M3;
  spec.scale_heads = kHeads;
  spec.k_base = &k_base;
  spec.v_base = &v_base;
  spec.k = spec.v = {kTokens * kHeads * kDim, kHeads * kDim, kDim};
  spec.k_scale = k_scale;
  spec.v_scale = v_scale;
  inferscale_cache* opened = nullptr;
  ASSERT_EQ(inferscale_cache_open(world.device.get(), &spec, &opened, &world.error), INFERSCALE_OK)
      << world.error.message;
  const CacheHandle cache(opened);
  const int32_t tokens[kTokens] = {1, 2, 3, 4}, page = 0;
  const inferscale_key key = Key(1);
  inferscale_capture* capture = nullptr;
  ASSERT_EQ(inferscale_capture_open(world.tier.get(), &owner, &key, tokens, kTokens, &capture,
                                    &world.error),
            INFERSCALE_OK);
  const inferscale_capture_span span = {capture, 0, kTokens, 0, 0};
  ASSERT_EQ(inferscale_capture_spans(cache.get(), &span, 1, &page, 1, world.stream, &world.error),
            INFERSCALE_OK)
      << world.error.message;
  std::vector<std::byte> record(2 * bytes.size());
  ASSERT_EQ(inferscale_capture_read(capture, world.stream, record.data(), record.size(), nullptr),
            INFERSCALE_OK);
  inferscale_capture_close(capture, world.stream);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const size_t head = i / kDim % kHeads;
    const float want = (i < bytes.size() / 2 ? k_scale : v_scale)[head];
    ASSERT_EQ(ReadElement(record.data(), Dtype::kBF16, i), want) << i;
  }
}

}  // namespace
}  // namespace inferscale
