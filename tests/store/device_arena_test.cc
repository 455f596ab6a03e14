#include "store/device_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "device_world.h"

namespace inferscale {
namespace {

constexpr uint64_t kTokens = 8;  // of every record here: 4096 bytes, a page of the host arena
constexpr uint64_t kBytes = 4096;

Sample Page(uint64_t n, const std::string& tenant = "tenant") {
  Sample sample = MakeSample(n, tenant);
  sample.info.tokens.assign(kTokens, static_cast<Token>(n));
  sample.payload.resize(kBytes, static_cast<std::byte>(n));
  return sample;
}

class DeviceArenaTest : public testing::Test {
 protected:
  // Records 1 to `count` on the disk, or in host memory too.
  void Make(uint64_t count, const DeviceArenaOptions& options, Tier where = Tier::kDisk) {
    reader_ = nullptr;
    world_ = std::make_unique<DeviceWorld>(options);
    for (uint64_t n = 1; n <= count; ++n) Put(n, "tenant");
    if (where == Tier::kDisk) world_->Reopen();
    reader_ = std::make_unique<DeviceReader>(*world_->device);
  }

  void Put(uint64_t n, const std::string& tenant) {
    samples_.push_back(std::make_unique<Sample>(Page(n, tenant)));
    const KvPut put = samples_.back()->Put();
    const Status status = world_->store->Put({&put, 1});
    ASSERT_TRUE(status) << status.error().message;
  }

  DeviceArena& arena() { return *world_->arena; }

  DeviceRequest Request(const std::string& tenant = "tenant") const {
    return {{tenant, kSampleFingerprint, kSampleShape}, keys_};
  }
  std::shared_ptr<DevicePins> Get(const std::vector<uint64_t>& numbers,
                                  const std::string& tenant = "tenant") {
    SetKeys(numbers);
    return arena().Get(Request(tenant), reader_->stream()).value();
  }
  void SetKeys(const std::vector<uint64_t>& numbers) {
    keys_.clear();
    for (const uint64_t n : numbers) keys_.push_back(SampleKey(n));
  }
  // Gets and reads one.
  void Read(uint64_t n, const std::string& tenant = "tenant") {
    const auto pins = Get({n}, tenant);
    const auto& record = pins->records().front();
    ASSERT_TRUE(record) << record.error().message;
    reader_->Read(*record, Of(n));
  }
  const Sample& Of(uint64_t n) const {
    return **std::find_if(samples_.begin(), samples_.end(),
                          [&](const auto& sample) { return sample->info.key == SampleKey(n); });
  }
  Code CodeOf(const std::shared_ptr<DevicePins>& pins, size_t i = 0) {
    return pins->records()[i] ? Code{} : pins->records()[i].error().code;
  }

  std::unique_ptr<DeviceWorld> world_;
  std::unique_ptr<DeviceReader> reader_;
  std::vector<std::unique_ptr<Sample>> samples_;
  std::vector<Hash128> keys_;
};

TEST_F(DeviceArenaTest, BringsInWhatIsMissing) {
  Make(3, {.budget = 1 << 20});
  for (const Tier tier : {Tier::kDisk, Tier::kDevice}) {
    const auto pins = Get({1, 2, 3, 2, 99});
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(pins->records()[i]);
      reader_->Read(*pins->records()[i], Of(keys_[i].high));
    }
    EXPECT_EQ(pins->records()[0]->tier, tier);
    EXPECT_EQ(CodeOf(pins, 4), Code::kNotFound);
    reader_->Check();
  }
  EXPECT_EQ(arena().stats().loads, 3U);
  EXPECT_EQ(arena().stats().bytes, 3 * kBytes);
  EXPECT_EQ(world_->store->stats().disk_reads, 3U);
  EXPECT_FALSE(world_->store->stats().slab_refused);
}

TEST_F(DeviceArenaTest, NeighboursShareACopy) {
  Make(5, {.budget = 1 << 20}, Tier::kHost);
  const auto pins = Get({1, 2, 3, 4, 5});
  for (size_t i = 0; i < 5; ++i) reader_->Read(*pins->records()[i], Of(i + 1));
  reader_->Check();
  EXPECT_EQ(arena().stats().copies, 1U);
  EXPECT_EQ(arena().stats().loaded_bytes, 5 * kBytes);
}

TEST_F(DeviceArenaTest, TwoStreamsWaitForOneCopy) {
  Make(1, {.budget = 1 << 20});
  DeviceReader other(*world_->device);
  Read(1);
  const auto pins = arena().Get(Request(), other.stream()).value();
  other.Read(*pins->records().front(), Of(1));
  other.Check();
  reader_->Check();
  EXPECT_EQ(arena().stats().copies, 1U);
}

// One record fills the arena, so each takes the place of one that may still be read.
TEST_F(DeviceArenaTest, APlaceIsOverwrittenOnlyAfterItsReaders) {
  Make(6, {.budget = kBytes});
  for (int round = 0; round < 10; ++round) {
    for (uint64_t n = 1; n <= 6; ++n) Read(n);
  }
  reader_->Check();
  EXPECT_GT(arena().stats().overtakes, 0U);
  EXPECT_EQ(arena().stats().evictions, 59U);
}

TEST_F(DeviceArenaTest, PinsStay) {
  Make(3, {.budget = 2 * kBytes + 100});
  const auto kept = Get({1});
  for (const uint64_t n : {2, 3, 2, 3}) Read(n);
  const auto second = Get({2});
  EXPECT_EQ(CodeOf(Get({3})), Code::kExhausted);
  reader_->Read(*kept->records().front(), Of(1));
  reader_->Check();
  EXPECT_LE(arena().stats().bytes, arena().stats().budget);
}

TEST_F(DeviceArenaTest, ATenantKeepsToItsShare) {
  Make(4, {.budget = 4 * kBytes, .tenant_budget = 2 * kBytes});
  Put(11, "other");
  Put(12, "other");
  Read(11, "other");
  Read(12, "other");
  for (uint64_t n = 1; n <= 4; ++n) Read(n);
  EXPECT_EQ(arena().stats().bytes, 4 * kBytes);
  const uint64_t loads = arena().stats().loads;
  Read(11, "other");
  Read(12, "other");
  EXPECT_EQ(arena().stats().loads, loads);
  EXPECT_EQ(CodeOf(Get({3, 4, 1}), 2), Code::kExhausted);  // the share is pinned
  reader_->Check();
}

TEST_F(DeviceArenaTest, AnotherTenantsRecordIsNotFound) {
  Make(1, {.budget = 1 << 20});
  EXPECT_EQ(CodeOf(Get({1}, "other")), Code::kNotFound);
  Read(1);
  EXPECT_EQ(CodeOf(Get({1}, "other")), Code::kNotFound);
  reader_->Check();
}

TEST_F(DeviceArenaTest, AnotherModelsRecordIsAConflict) {
  Make(1, {.budget = 1 << 20});
  Read(1);
  DeviceRequest request = Request();
  request.owner.fingerprint = {1, 2};
  EXPECT_EQ(CodeOf(arena().Get(request, reader_->stream()).value()), Code::kConflict);
  request = Request();
  request.owner.shape.layers = 1;
  EXPECT_EQ(CodeOf(arena().Get(request, reader_->stream()).value()), Code::kConflict);
  reader_->Check();
}

TEST_F(DeviceArenaTest, ErasedIsGoneAtOnceAndWiped) {
  for (const bool tell : {false, true}) {
    Make(2, {.budget = 1 << 20});
    const auto kept = Get({1});
    reader_->Read(*kept->records().front(), Of(1));
    const std::byte* place = kept->records().front()->data;
    ASSERT_TRUE(EraseSamples(*world_->store, {1}));
    if (tell) arena().Forget(keys_);
    EXPECT_EQ(CodeOf(Get({1})), Code::kNotFound);
    // Who has it may go on.
    reader_->Read(*kept->records().front(), Of(1));
    kept->Release();
    arena().Forget(keys_);
    reader_->Check();
    EXPECT_EQ(arena().stats().bytes, 0U);
    SetEmulatedRules({});  // finishes the arena's stream; memory of this device can be looked at
    EXPECT_TRUE(std::all_of(place, place + kBytes, [](std::byte b) { return b == std::byte{0}; }));
  }
}

// A store that does something between reading a record and handing it out.
class InterruptedStore final : public KvStore {
 public:
  explicit InterruptedStore(KvStore& store) : store_(store) {}

  // `meanwhile` happens once, before the first Get of that sample returns.
  void Interrupt(uint64_t sample, std::function<void()> meanwhile) {
    key_ = SampleKey(sample);
    meanwhile_ = std::move(meanwhile);
    due_ = true;
  }

  Result<std::shared_ptr<const PinnedKv>> Get(const Hash128& key, const Fingerprint& fingerprint,
                                              const KvShape& shape) override {
    auto pin = store_.Get(key, fingerprint, shape);
    if (key == key_ && due_.exchange(false)) meanwhile_();
    return pin;
  }
  Status Put(std::span<const KvPut> records) override { return store_.Put(records); }
  bool Contains(const Hash128& key) override { return store_.Contains(key); }
  Result<std::vector<size_t>> Missing(std::span<const Hash128> keys) override {
    return store_.Missing(keys);
  }
  std::vector<Result<std::shared_ptr<const PinnedKv>>> GetResident(
      const KvOwner& owner, std::span<const Hash128> keys) override {
    return store_.GetResident(owner, keys);
  }
  std::vector<Status> Check(const KvOwner& owner, std::span<const KvClaim> claims) override {
    return store_.Check(owner, claims);
  }
  Status Erase(std::span<const Hash128> keys) override { return store_.Erase(keys); }
  Result<CompactReport> Compact(bool full) override { return store_.Compact(full); }
  Status SealWhereAsked() override { return store_.SealWhereAsked(); }
  Result<uint64_t> TenantBytes(const std::string& tenant) override {
    return store_.TenantBytes(tenant);
  }
  Result<std::vector<Hash128>> Keys() override { return store_.Keys(); }
  Result<uint64_t> BytesOf(std::span<const Hash128> keys) override { return store_.BytesOf(keys); }
  Result<bool> Verify() override { return store_.Verify(); }
  KvStoreStats stats() override { return store_.stats(); }

 private:
  KvStore& store_;
  Hash128 key_;
  std::function<void()> meanwhile_;
  std::atomic<bool> due_ = false;
};

std::shared_ptr<RecordReaders> Readers(std::shared_ptr<KvStore> store) {
  return std::make_shared<RecordReaders>(std::move(store), TestSeed() % 4);
}

TEST_F(DeviceArenaTest, WhatIsErasedOnItsWayDoesNotComeIn) {
  Make(2, {.budget = 1 << 20});
  const auto store = std::make_shared<InterruptedStore>(*world_->store);
  world_->arena = DeviceArena::Create(world_->device, Readers(store), {.budget = 1 << 20}).value();
  store->Interrupt(1, [&] {
    ASSERT_TRUE(EraseSamples(*store, {1}));
    const Hash128 key = SampleKey(1);
    arena().Forget({&key, 1});
  });
  const auto pins = Get({1, 2});
  EXPECT_EQ(CodeOf(pins, 0), Code::kNotFound);
  ASSERT_TRUE(pins->records()[1]);
  reader_->Read(*pins->records()[1], Of(2));
  reader_->Check();
  EXPECT_EQ(arena().stats().bytes, kBytes);
}

TEST_F(DeviceArenaTest, WhatAnotherBroughtInMeanwhileIsNotCopiedAgain) {
  Make(1, {.budget = 1 << 20});
  const auto store = std::make_shared<InterruptedStore>(*world_->store);
  world_->arena = DeviceArena::Create(world_->device, Readers(store), {.budget = 1 << 20}).value();
  store->Interrupt(1, [&] { Read(1); });
  Read(1);
  reader_->Check();
  EXPECT_EQ(arena().stats().copies, 1U);
}

TEST_F(DeviceArenaTest, PrefetchBringsInAsMuchAsFits) {
  Make(6, {.budget = 4 * kBytes});
  const auto kept = Get({6});
  SetKeys({1, 99, 2, 3, 4, 5});
  EXPECT_EQ(arena().Prefetch(Request()), 3U);
  const uint64_t loads = arena().stats().loads;
  EXPECT_EQ(loads, 4U);
  for (const uint64_t n : {1, 2, 3}) Read(n);
  reader_->Read(*kept->records().front(), Of(6));
  reader_->Check();
  EXPECT_EQ(arena().stats().loads, loads);
  EXPECT_LE(arena().stats().bytes, arena().stats().budget);
}

TEST_F(DeviceArenaTest, WithoutPinnedMemoryCopiesAreOnlySlower) {
  Make(2, {.budget = 1 << 20});
  reader_.reset();
  world_->arena = nullptr;
  world_->store = nullptr;
  SetEmulatedRules({.lazy = true, .seed = TestSeed(), .refuse_alloc = 1});
  SystemClock clock;
  world_->store = KvStore::Open(SystemEnv(), clock, world_->store_options).value();
  EXPECT_TRUE(world_->store->stats().slab_refused);
  const auto refused =
      DeviceArena::Create(world_->device, Readers(world_->store), {.budget = 1 << 20});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  SetEmulatedRules({.lazy = true, .seed = TestSeed()});
  world_->arena =
      DeviceArena::Create(world_->device, Readers(world_->store), {.budget = 1 << 20}).value();
  reader_ = std::make_unique<DeviceReader>(*world_->device);
  Read(1);
  Read(2);
  reader_->Check();
  world_->arena = nullptr;
  world_->store = nullptr;
}

TEST_F(DeviceArenaTest, ARefusedCopyIsAnErrorOfItsRecords) {
  Make(2, {.budget = 1 << 20});
  SetEmulatedRules({.lazy = true, .seed = TestSeed(), .refuse_copy = 1});
  EXPECT_EQ(CodeOf(Get({1, 1, 2})), Code::kTransient);
  EXPECT_EQ(arena().stats().bytes, 0U);
  SetEmulatedRules({.lazy = true, .seed = TestSeed(), .refuse_event = 1});
  // Without events the device is waited for.
  Read(1);
  SetEmulatedRules({.lazy = true, .seed = TestSeed()});
  Read(1);
  Read(2);
  reader_->Check();
}

TEST_F(DeviceArenaTest, HoldReadsNoDisk) {
  Make(2, {.budget = 1 << 20});
  Read(1);
  SetKeys({1, 2, 99});
  const auto pins = arena().Hold(Request());
  EXPECT_FALSE(pins->IsLoaded());
  EXPECT_EQ(CodeOf(pins, 2), Code::kNotFound);
  EXPECT_EQ(world_->store->stats().disk_reads, 1U);
  arena().Load(Request(), *pins);
  ASSERT_TRUE(pins->IsLoaded());
  ASSERT_TRUE(pins->Await(reader_->stream()));
  reader_->Read(*pins->records()[0], Of(1));
  reader_->Read(*pins->records()[1], Of(2));
  reader_->Check();
}

TEST_F(DeviceArenaTest, PlacesWaitForEveryStreamThatAwaited) {
  Make(2, {.budget = kBytes});
  DeviceReader other(*world_->device);
  for (int round = 0; round < 20; ++round) {
    for (const uint64_t n : {1, 2}) {
      const auto pins = Get({n});
      ASSERT_TRUE(pins->Await(other.stream()));
      reader_->Read(*pins->records().front(), Of(n));
      other.Read(*pins->records().front(), Of(n));
    }
  }
  reader_->Check();
  other.Check();
}

TEST_F(DeviceArenaTest, WhatNobodyAwaitedIsFreeAtOnce) {
  Make(2, {.budget = kBytes});
  for (const uint64_t n : {1, 2, 1, 2}) {
    SetKeys({n});
    const auto pins = arena().Hold(Request());
    arena().Load(Request(), *pins);
    EXPECT_TRUE(pins->records().front());
    EXPECT_EQ(arena().stats().pinned_bytes, kBytes);
  }
  EXPECT_EQ(arena().stats().pinned_bytes, 0U);
  EXPECT_EQ(arena().stats().overtakes, 0U);
}

TEST_F(DeviceArenaTest, PinsKeepTheArena) {
  Make(1, {.budget = 1 << 20});
  auto pins = Get({1});
  world_->arena = nullptr;
  reader_->Read(*pins->records().front(), Of(1));
  pins = nullptr;
  reader_->Check();
}

}  // namespace
}  // namespace inferscale
