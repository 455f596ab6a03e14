// What the C interface refuses, and how it says so.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "plain_engine.h"

namespace inferscale {
namespace {

constexpr uint32_t kTokens = PlainEngine::kTokens;

class CapiTest : public testing::TestWithParam<Place> {
 protected:
  void Store(uint64_t n) {
    ASSERT_EQ(engine_.Store(n, owner_), INFERSCALE_OK);
    Flush();
  }
  void Flush() {
    inferscale_error error = {};
    ASSERT_EQ(inferscale_tier_flush(world_.tier.get(), &error), INFERSCALE_OK) << error.message;
  }
  int32_t Verify(uint64_t n, const inferscale_owner& owner, uint32_t first,
                 const std::vector<int32_t>& expected) {
    const inferscale_claim claim = {Key(n), first, static_cast<uint32_t>(expected.size()),
                                    expected.data()};
    int32_t code = -1;
    inferscale_error error = {};
    EXPECT_EQ(inferscale_store_verify(world_.store.get(), &owner, &claim, 1, &code, &error),
              INFERSCALE_OK)
        << error.message;
    return code;
  }
  int32_t LeaseCode(uint64_t n, const inferscale_owner& owner) {
    const LeaseHandle lease = world_.Lease(owner, {Key(n)});
    return world_.Settle(lease.get(), 1).front();
  }
  int32_t Inject(inferscale_lease* lease, uint32_t record, uint32_t first, uint32_t tokens,
                 uint32_t page_token, int32_t page) {
    const inferscale_inject_span span = {lease, record, first, tokens, 0, page_token};
    return inferscale_inject(engine_.cache(), &span, 1, &page, 1, world_.stream, &world_.error);
  }

  World world_{GetParam(),
               {.host = 1 << 17, .device = 1 << 17, .capture = 3 * PlainEngine::kRecordBytes}};
  PlainEngine engine_{world_, world_.stream};
  const inferscale_owner owner_ = world_.Owner(PlainEngine::kShape);
};
INSTANTIATE_TEST_SUITE_P(Places, CapiTest, testing::Values(Place::kHost, Place::kDevice),
                         [](const auto& at) {
                           return at.param == Place::kHost ? "Host" : "Device";
                         });

TEST_P(CapiTest, WhatARecordIsNotIsSaid) {
  Store(1);
  const std::vector<int32_t> tokens = PlainEngine::Tokens(1);
  for (int twice = 0; twice < 2; ++twice) {
    EXPECT_EQ(Verify(1, owner_, 0, tokens), INFERSCALE_OK);
    EXPECT_EQ(Verify(1, owner_, 3, {tokens.begin() + 3, tokens.end()}), INFERSCALE_OK);
    EXPECT_EQ(Verify(1, owner_, 1, {tokens.begin() + 1, tokens.begin() + 2}), INFERSCALE_OK);
    EXPECT_EQ(Verify(1, owner_, 1, tokens), INFERSCALE_INVALID);
    EXPECT_EQ(Verify(1, owner_, kTokens + 1, {}), INFERSCALE_INVALID);
    EXPECT_EQ(Verify(1, owner_, std::numeric_limits<uint32_t>::max(), tokens), INFERSCALE_INVALID);
    EXPECT_EQ(Verify(1, owner_, 1, {tokens.begin(), tokens.begin() + 2}), INFERSCALE_CONFLICT);
    EXPECT_EQ(Verify(2, owner_, 0, tokens), INFERSCALE_NOT_FOUND);
    EXPECT_EQ(LeaseCode(2, owner_), INFERSCALE_NOT_FOUND);

    inferscale_owner other = world_.Owner(PlainEngine::kShape, "other");
    EXPECT_EQ(Verify(1, other, 0, tokens), INFERSCALE_NOT_FOUND);
    EXPECT_EQ(LeaseCode(1, other), INFERSCALE_NOT_FOUND);
    other = owner_;
    other.fingerprint = Key(99);
    EXPECT_EQ(Verify(1, other, 0, tokens), INFERSCALE_CONFLICT);
    EXPECT_EQ(LeaseCode(1, other), INFERSCALE_CONFLICT);
    other = owner_;
    other.shape.layers = 1;
    EXPECT_EQ(Verify(1, other, 0, tokens), INFERSCALE_CONFLICT);
    EXPECT_EQ(LeaseCode(1, other), INFERSCALE_CONFLICT);
    EXPECT_EQ(LeaseCode(1, owner_), INFERSCALE_OK);
    world_.Reopen();
  }
}

TEST_P(CapiTest, AFullTierIsExhausted) {
  inferscale_capture* captures[4] = {};
  for (uint64_t n = 0; n < 3; ++n)
    ASSERT_EQ(engine_.Begin(n + 1, owner_, &captures[n]), INFERSCALE_OK);
  EXPECT_EQ(engine_.Begin(4, owner_, &captures[3], &world_.error), INFERSCALE_EXHAUSTED);
  EXPECT_EQ(world_.error.code, INFERSCALE_EXHAUSTED);
  EXPECT_NE(std::string(world_.error.message), "");
  EXPECT_EQ(captures[3], nullptr);
  for (inferscale_capture* capture : captures) inferscale_capture_close(capture, world_.stream);
  world_.Sync();
  Flush();
  EXPECT_EQ(world_.Stats().capture_bytes, 0U);

  // Held leases fill what records are held in: 32 of them, or fewer where the host rounds up.
  for (uint64_t n = 1; n <= 40; ++n) Store(n);
  std::vector<LeaseHandle> held;
  int32_t code = INFERSCALE_OK;
  for (uint64_t n = 1; n <= 40 && code == INFERSCALE_OK; ++n) {
    held.push_back(world_.Lease(owner_, {Key(n)}));
    code = world_.Settle(held.back().get(), 1).front();
  }
  EXPECT_EQ(code, INFERSCALE_EXHAUSTED);
  EXPECT_GT(held.size(), 20U);
  EXPECT_EQ(Inject(held.back().get(), 0, 0, 1, 0, 0), INFERSCALE_INVALID);
  for (size_t i = 0; i + 1 < held.size(); ++i) engine_.ExpectRecord(i + 1, held[i].get(), 0);
  held.clear();
  world_.Sync();
  EXPECT_EQ(LeaseCode(40, owner_), INFERSCALE_OK);
}

TEST_P(CapiTest, ADamagedRecordIsCorruptAndGone) {
  for (uint64_t n = 1; n <= 2; ++n) Store(n);
  world_.Reopen();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(world_.kv_dir())) {
    if (entry.path().extension() != ".seg") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    for (uint64_t at = 16; at + 1 < entry.file_size(); at += 4096) {
      file.seekp(static_cast<std::streamoff>(at));
      file.write("damage", 6);
    }
  }
  EXPECT_EQ(Verify(1, owner_, 0, PlainEngine::Tokens(1)), INFERSCALE_CORRUPT);
  EXPECT_EQ(Verify(1, owner_, 0, PlainEngine::Tokens(1)), INFERSCALE_NOT_FOUND);
  EXPECT_EQ(LeaseCode(2, owner_), INFERSCALE_CORRUPT);
  EXPECT_EQ(LeaseCode(2, owner_), INFERSCALE_NOT_FOUND);
  EXPECT_EQ(world_.Stats().corrupt_records, 2U);
}

TEST_P(CapiTest, WhatIsErasedElsewhereIsGone) {
  for (uint64_t n = 1; n <= 3; ++n) Store(n);
  const StoreHandle other = world_.OpenStore();
  const LeaseHandle held = world_.Lease(owner_, {Key(1), Key(2), Key(3)});
  ASSERT_EQ(world_.Settle(held.get(), 3), std::vector<int32_t>(3, INFERSCALE_OK));
  EXPECT_EQ(Verify(1, owner_, 0, PlainEngine::Tokens(1)), INFERSCALE_OK);
  const inferscale_key keys[] = {Key(1), Key(77)};
  ASSERT_EQ(inferscale_store_erase(other.get(), keys, 2, nullptr), INFERSCALE_OK);
  EXPECT_EQ(Verify(1, owner_, 0, PlainEngine::Tokens(1)), INFERSCALE_NOT_FOUND);
  EXPECT_EQ(LeaseCode(1, owner_), INFERSCALE_NOT_FOUND);
  EXPECT_EQ(LeaseCode(2, owner_), INFERSCALE_OK);
  ASSERT_EQ(inferscale_store_erase(world_.store.get(), &keys[0], 1, nullptr), INFERSCALE_OK);
  // Who has it may go on.
  engine_.ExpectRecord(1, held.get(), 0);
  engine_.ExpectRecord(3, held.get(), 2);
  // And it can be made anew.
  Store(1);
  EXPECT_EQ(LeaseCode(1, owner_), INFERSCALE_OK);
}

TEST_P(CapiTest, WhatWasNotCapturedIsNotStored) {
  inferscale_capture* capture = nullptr;
  ASSERT_EQ(engine_.Begin(1, owner_, &capture), INFERSCALE_OK);
  const int32_t page = 0;
  for (const auto& [first, tokens] : {std::pair{0U, 2U}, {4U, 4U}}) {
    const inferscale_capture_span span = {capture, first, tokens, 0, 0};
    ASSERT_EQ(inferscale_capture_spans(engine_.cache(), &span, 1, &page, 1, world_.stream, nullptr),
              INFERSCALE_OK);
  }
  std::vector<std::byte> bytes(PlainEngine::kRecordBytes);
  EXPECT_EQ(inferscale_capture_read(capture, world_.stream, bytes.data(), bytes.size(), nullptr),
            INFERSCALE_INVALID);
  EXPECT_EQ(inferscale_capture_commit(capture, world_.stream, &world_.error), INFERSCALE_INVALID);
  world_.Sync();
  Flush();
  EXPECT_EQ(world_.Stats().records, 0U);
  EXPECT_EQ(world_.Stats().capture_bytes, 0U);
}

TEST_P(CapiTest, SpansThatLeaveSomethingAreRefused) {
  Store(1);
  const LeaseHandle lease = world_.Lease(owner_, {Key(1), Key(2)});
  world_.Settle(lease.get(), 2);
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  EXPECT_EQ(Inject(lease.get(), 0, 0, kTokens, 0, 0), INFERSCALE_OK);
  EXPECT_EQ(Inject(lease.get(), 1, 0, 1, 0, 0), INFERSCALE_INVALID);        // not found
  EXPECT_EQ(Inject(lease.get(), 2, 0, 1, 0, 0), INFERSCALE_INVALID);        // no such key
  EXPECT_EQ(Inject(lease.get(), 0, 1, kTokens, 0, 0), INFERSCALE_INVALID);  // over the record
  EXPECT_EQ(Inject(lease.get(), 0, kMost, 2, 0, 0), INFERSCALE_INVALID);
  EXPECT_EQ(Inject(lease.get(), 0, 0, kTokens, 9, 0), INFERSCALE_INVALID);  // over the pages
  EXPECT_EQ(Inject(lease.get(), 0, 0, kTokens, kMost, 0), INFERSCALE_INVALID);
  EXPECT_EQ(Inject(lease.get(), 0, 0, kTokens, 0, -1), INFERSCALE_INVALID);  // no such page
  EXPECT_EQ(Inject(lease.get(), 0, 0, kTokens, 0, PlainEngine::kPages), INFERSCALE_INVALID);
  EXPECT_EQ(Inject(nullptr, 0, 0, kTokens, 0, 0), INFERSCALE_INVALID);
  const inferscale_inject_span span = {lease.get(), 0, 0, kTokens, -1, 0};
  const int32_t page = 0;
  EXPECT_EQ(inferscale_inject(engine_.cache(), &span, 1, &page, 1, world_.stream, nullptr),
            INFERSCALE_INVALID);
  engine_.Sync();
}

TEST_P(CapiTest, CacheSpecsThatContradictThemselvesAreRefused) {
  const float table[64] = {};
  const float* tables[] = {table};
  const uint32_t rotary_dims = 64, no_dims = 0, one = 1, layers[] = {1, 1}, beyond[] = {0, 2};
  const uint64_t no_base[] = {0, 0};
  const auto code = [&](auto change) {
    inferscale_cache_spec spec = engine_.Spec();
    change(spec);
    inferscale_cache* cache = nullptr;
    const int32_t result = inferscale_cache_open(world_.device.get(), &spec, &cache, nullptr);
    EXPECT_EQ(cache == nullptr, result != INFERSCALE_OK);
    inferscale_cache_close(cache);
    return result;
  };
  const auto with_rope = [&](auto change) {
    return code([&](inferscale_cache_spec& s) {
      s.rope_tables = 1;
      s.rope_kind = 1;
      s.positions = 1;
      s.rotary_dims = &rotary_dims;
      s.rope = tables;
      change(s);
    });
  };
  using Spec = inferscale_cache_spec;
  EXPECT_EQ(code([](Spec&) {}), INFERSCALE_OK);
  EXPECT_EQ(with_rope([](Spec&) {}), INFERSCALE_OK);
  EXPECT_EQ(with_rope([&](Spec& s) { s.rotary_dims = &no_dims; }), INFERSCALE_OK);
  EXPECT_EQ(code([](Spec& s) { s.size = 0; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([](Spec& s) { s.size = 8; }), INFERSCALE_INVALID);  // then there are no heads
  EXPECT_EQ(code([](Spec& s) { s.layers = 0; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([](Spec& s) { s.layers = 5000; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([](Spec& s) { s.dim = 0; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([](Spec& s) { s.page_tokens = 0; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([](Spec& s) { s.pages = 0xFFFFFFFF; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([](Spec& s) { s.dtype = 3; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([](Spec& s) { s.scale_heads = 1; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([](Spec& s) { s.k_base = nullptr; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([&](Spec& s) { s.v_base = no_base; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([](Spec& s) { s.record_layers = 3; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([&](Spec& s) { s.record_layer = layers; }), INFERSCALE_INVALID);
  EXPECT_EQ(code([&](Spec& s) { s.record_layer = beyond; }), INFERSCALE_INVALID);
  EXPECT_NE(code([](Spec& s) { s.k.token = 3; }), INFERSCALE_OK);
  EXPECT_EQ(with_rope([](Spec& s) { s.rope_tables = 5; }), INFERSCALE_UNSUPPORTED);
  EXPECT_EQ(with_rope([](Spec& s) { s.rope_kind = 3; }), INFERSCALE_INVALID);
  EXPECT_EQ(with_rope([](Spec& s) { s.positions = 0; }), INFERSCALE_INVALID);
  EXPECT_EQ(with_rope([](Spec& s) { s.rope = nullptr; }), INFERSCALE_INVALID);
  EXPECT_EQ(with_rope([](Spec& s) { s.rotary_dims = nullptr; }), INFERSCALE_INVALID);
  EXPECT_EQ(with_rope([&](Spec& s) { s.rotary_dims = &one; }), INFERSCALE_INVALID);
  EXPECT_EQ(with_rope([&](Spec& s) { s.layer_rope = layers; }), INFERSCALE_INVALID);
  const uint32_t unsupported = world_.place == Place::kDevice ? INFERSCALE_F32 : INFERSCALE_F8_E4M3;
  EXPECT_EQ(code([&](Spec& s) { s.dtype = unsupported; }), INFERSCALE_UNSUPPORTED);
}

TEST_P(CapiTest, ACacheOfOnePlaceTakesNoLeaseOfAnother) {
  Store(1);
  World other(GetParam() == Place::kHost ? Place::kDevice : Place::kHost);
  PlainEngine engine(other, other.stream);
  const LeaseHandle lease = world_.Lease(owner_, {Key(1)});
  world_.Settle(lease.get(), 1);
  const inferscale_inject_span span = {lease.get(), 0, 0, 1, 0, 0};
  const int32_t page = 0;
  EXPECT_EQ(inferscale_inject(engine.cache(), &span, 1, &page, 1, other.stream, nullptr),
            INFERSCALE_INVALID);
  inferscale_capture* capture = nullptr;
  ASSERT_EQ(engine_.Begin(2, owner_, &capture), INFERSCALE_OK);
  const inferscale_capture_span taken = {capture, 0, 1, 0, 0};
  EXPECT_EQ(inferscale_capture_spans(engine.cache(), &taken, 1, &page, 1, other.stream, nullptr),
            INFERSCALE_INVALID);
  inferscale_capture_close(capture, world_.stream);
}

TEST(Capi, RefusalsOfTheDeviceAreToldAndBreakNothing) {
  SCOPED_TRACE(TestSeed());
  World world(Place::kDevice);
  PlainEngine engine(world, world.stream);
  const inferscale_owner owner = world.Owner(PlainEngine::kShape);
  constexpr uint64_t kRecords = 60;
  std::vector<inferscale_key> keys;
  SetRules({.lazy = true, .seed = TestSeed(), .refuse_copy = 0.2, .refuse_event = 0.2});
  for (uint64_t n = 1; n <= kRecords; ++n) {
    keys.push_back(Key(n));
    ASSERT_EQ(engine.Store(n, owner), INFERSCALE_OK);
    if (n % 10 != 0) continue;
    (void)inferscale_tier_flush(world.tier.get(), nullptr);
    const LeaseHandle lease = world.Lease(owner, keys);
    for (const int32_t code : world.Settle(lease.get(), n)) {
      EXPECT_TRUE(code == INFERSCALE_OK || code == INFERSCALE_NOT_FOUND ||
                  code == INFERSCALE_TRANSIENT)
          << code;
    }
  }
  SetRules({.lazy = true, .seed = TestSeed()});
  const inferscale_stats stats = world.Stats();
  EXPECT_GT(stats.captures_stored, 0U);
  EXPECT_GT(stats.captures_failed, 0U);
  EXPECT_EQ(stats.captures_stored + stats.captures_failed, kRecords);
  EXPECT_EQ(stats.records, stats.captures_stored);
  const LeaseHandle lease = world.Lease(owner, keys);
  const std::vector<int32_t> codes = world.Settle(lease.get(), kRecords);
  uint64_t found = 0;
  for (uint32_t i = 0; i < kRecords; ++i) {
    if (codes[i] == INFERSCALE_OK) {
      ++found;
      engine.ExpectRecord(i + 1, lease.get(), i);
    } else {
      EXPECT_EQ(codes[i], INFERSCALE_NOT_FOUND);
    }
  }
  EXPECT_EQ(found, stats.records);
}

TEST(Capi, NullsAreInvalid) {
  World world(Place::kHost);
  PlainEngine engine(world, 0);
  const inferscale_owner owner = world.Owner(PlainEngine::kShape);
  const inferscale_key key = Key(1);
  const int32_t token = 1;
  int32_t code = 0;
  const inferscale_claim claim = {key, 0, 1, nullptr};
  inferscale_store* store = nullptr;
  inferscale_tier* tier = nullptr;
  inferscale_lease* lease = nullptr;
  inferscale_capture* capture = nullptr;
  inferscale_cache* cache = nullptr;
  inferscale_store_options store_options = {};
  store_options.size = sizeof(store_options);
  inferscale_tier_options tier_options = {};
  tier_options.size = sizeof(tier_options);
  inferscale_owner nameless = owner, unmade = owner;
  nameless.tenant = nullptr;
  unmade.fingerprint = {};
  inferscale_stats unsized = {};
  const int32_t codes[] = {
      inferscale_device_open(0, nullptr, nullptr, nullptr),
      inferscale_store_open(nullptr, &store, nullptr),
      inferscale_store_open(&store_options, &store, nullptr),  // no directory
      inferscale_store_open(&store_options, nullptr, nullptr),
      inferscale_store_verify(nullptr, &owner, nullptr, 0, nullptr, nullptr),
      inferscale_store_verify(world.store.get(), nullptr, nullptr, 0, nullptr, nullptr),
      inferscale_store_verify(world.store.get(), &nameless, nullptr, 0, nullptr, nullptr),
      inferscale_store_verify(world.store.get(), &unmade, nullptr, 0, nullptr, nullptr),
      inferscale_store_verify(world.store.get(), &owner, nullptr, 1, &code, nullptr),
      inferscale_store_verify(world.store.get(), &owner, &claim, 1, nullptr, nullptr),
      inferscale_store_verify(world.store.get(), &owner, &claim, 1, &code, nullptr),
      inferscale_store_erase(nullptr, &key, 1, nullptr),
      inferscale_store_erase(world.store.get(), nullptr, 1, nullptr),
      inferscale_tier_open(nullptr, nullptr, &tier_options, &tier, nullptr),
      inferscale_tier_open(world.store.get(), nullptr, nullptr, &tier, nullptr),
      inferscale_tier_open(world.store.get(), nullptr, &tier_options, nullptr, nullptr),
      inferscale_tier_flush(nullptr, nullptr),
      inferscale_tier_stats(nullptr, &unsized, nullptr),
      inferscale_tier_stats(world.tier.get(), nullptr, nullptr),
      inferscale_tier_stats(world.tier.get(), &unsized, nullptr),
      inferscale_lease_open(nullptr, &owner, &key, 1, &lease, nullptr),
      inferscale_lease_open(world.tier.get(), nullptr, &key, 1, &lease, nullptr),
      inferscale_lease_open(world.tier.get(), &owner, nullptr, 1, &lease, nullptr),
      inferscale_lease_open(world.tier.get(), &owner, &key, 1, nullptr, nullptr),
      inferscale_lease_poll(nullptr, &code, nullptr),
      inferscale_cache_open(nullptr, nullptr, &cache, nullptr),
      inferscale_inject(nullptr, nullptr, 0, nullptr, 0, 0, nullptr),
      inferscale_inject(engine.cache(), nullptr, 1, nullptr, 0, 0, nullptr),
      inferscale_inject(engine.cache(), nullptr, 0, nullptr, 1, 0, nullptr),
      inferscale_capture_open(nullptr, &owner, &key, &token, 1, &capture, nullptr),
      inferscale_capture_open(world.tier.get(), nullptr, &key, &token, 1, &capture, nullptr),
      inferscale_capture_open(world.tier.get(), &owner, nullptr, &token, 1, &capture, nullptr),
      inferscale_capture_open(world.tier.get(), &owner, &key, nullptr, 1, &capture, nullptr),
      inferscale_capture_open(world.tier.get(), &owner, &key, nullptr, 0, &capture, nullptr),
      inferscale_capture_open(world.tier.get(), &owner, &key, &token, 1, nullptr, nullptr),
      inferscale_capture_spans(nullptr, nullptr, 0, nullptr, 0, 0, nullptr),
      inferscale_capture_spans(engine.cache(), nullptr, 1, nullptr, 0, 0, nullptr),
      inferscale_capture_read(nullptr, 0, &code, 4, nullptr),
      inferscale_capture_commit(nullptr, 0, nullptr),
  };
  for (size_t i = 0; i < std::size(codes); ++i) EXPECT_EQ(codes[i], INFERSCALE_INVALID) << i;
  EXPECT_EQ(inferscale_lease_open(world.tier.get(), &owner, nullptr, 0, &lease, nullptr),
            INFERSCALE_OK);
  EXPECT_EQ(inferscale_lease_poll(lease, nullptr, nullptr), INFERSCALE_OK);
  inferscale_lease_close(lease);

  inferscale_lease_close(nullptr);
  inferscale_capture_close(nullptr, 0);
  inferscale_cache_close(nullptr);
  inferscale_tier_close(nullptr);
  inferscale_store_close(nullptr);
  inferscale_device_close(nullptr);
  inferscale_hash(nullptr, 0, nullptr);
}

TEST(Capi, AMissingPluginIsUnsupported) {
  inferscale_device* device = nullptr;
  inferscale_error error = {};
  EXPECT_EQ(inferscale_device_open(0, "/nowhere/plugin.so", &device, &error),
            INFERSCALE_UNSUPPORTED);
  EXPECT_EQ(device, nullptr);
  EXPECT_NE(std::string(error.message).find("/nowhere/plugin.so"), std::string::npos);
  // Far longer than there is room for, and cut off between two characters.
  std::string path = "/";
  while (path.size() < 2000) path += "\u00e4";
  EXPECT_EQ(inferscale_device_open(0, path.c_str(), &device, &error), INFERSCALE_UNSUPPORTED);
  EXPECT_GT(std::strlen(error.message), 500U);
  const std::string_view tail = error.message + std::strlen(error.message) - 2;
  EXPECT_EQ(tail, "\u00e4");
}

TEST(Capi, ALaterCallersStructIsTakenIfWhatIsNewIsZero) {
  TempDir dir;
  struct Later {
    inferscale_store_options known;
    uint64_t added;
  } later = {};
  later.known.size = sizeof(later);
  later.known.dir = dir.path().c_str();
  inferscale_store* store = nullptr;
  EXPECT_EQ(inferscale_store_open(&later.known, &store, nullptr), INFERSCALE_OK);
  inferscale_store_close(store);
  later.added = 1;
  EXPECT_EQ(inferscale_store_open(&later.known, &store, nullptr), INFERSCALE_UNSUPPORTED);
}

TEST(Capi, HashesAreInferScales) {
  const inferscale_field fields[] = {{"ab", 2}, {"c", 1}};
  inferscale_key key = {};
  inferscale_hash(fields, 2, &key);
  const Hash128 hash = Hasher().Add("ab").Add("c").Digest();
  std::string hex;
  for (const uint8_t byte : key.bytes) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(hex, hash.Hex());
  EXPECT_EQ(inferscale_abi_version(), uint32_t{INFERSCALE_ABI_VERSION});
}

}  // namespace
}  // namespace inferscale
