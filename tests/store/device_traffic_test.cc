// Many threads, streams and tenants over a small device arena, against a plain model: whatever is
// pinned has the bytes of its record whenever a stream reads it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/mutex.h"
#include "device_world.h"

namespace inferscale {
namespace {

constexpr uint64_t kBudget = 40 << 10, kTenantBudget = 26 << 10;
constexpr uint64_t kThreads = 4, kTenants = 2;
constexpr uint64_t kLasting = 40;  // records 1 to 40; those from 100 on come and go

// Who may read it. Records that come and go belong to a thread, which alone puts and erases them.
uint64_t TenantOf(uint64_t n) { return n % kTenants; }
uint64_t Volatile(uint64_t thread, uint64_t i) { return 100 + thread + kThreads * i; }
std::string TenantName(uint64_t tenant) { return "tenant " + std::to_string(tenant); }

// Bytes that are pinned, as far as the threads know: at most what really is.
class PinModel {
 public:
  void Add(uint64_t n, uint64_t bytes) {
    MutexLock lock(mutex_);
    if (pins_[n]++ != 0) return;
    tenant_[TenantOf(n)] += bytes;
    EXPECT_LE(tenant_[TenantOf(n)], kTenantBudget);
    EXPECT_LE(tenant_[0] + tenant_[1], kBudget);
  }
  void Remove(uint64_t n, uint64_t bytes) {
    MutexLock lock(mutex_);
    if (--pins_[n] == 0) tenant_[TenantOf(n)] -= bytes;
  }

 private:
  Mutex mutex_;
  std::map<uint64_t, int> pins_ GUARDED_BY(mutex_);
  uint64_t tenant_[kTenants] GUARDED_BY(mutex_) = {};
};

class Traffic {
 public:
  // The host arena is small too, so that its places are used again while the device copies.
  Traffic() : world_({.budget = kBudget, .tenant_budget = kTenantBudget}, 160 << 10) {
    for (uint64_t n = 1; n <= kLasting; ++n) AddSample(n);
    for (uint64_t t = 0; t < kThreads; ++t) {
      for (uint64_t i = 0; i < 3; ++i) AddSample(Volatile(t, i));
    }
    for (uint64_t n = 1; n <= kLasting; ++n) Put(n);
    world_.Reopen();
  }

  DeviceWorld& world() { return world_; }

  // `refusing`: calls to the device may fail.
  void Run(int steps, bool refusing) {
    std::vector<std::jthread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([this, t, steps, refusing] { Thread(*this, t, refusing).Run(steps); });
    }
  }

  // Every record can be had, and nothing is left pinned.
  void ExpectSound() {
    SetEmulatedRules({.lazy = true, .seed = TestSeed() + 1});
    EXPECT_EQ(world_.arena->stats().pinned_bytes, 0U);
    DeviceReader reader(*world_.device);
    for (uint64_t n = 1; n <= kLasting; ++n) {
      const Hash128 key = SampleKey(n);
      const auto pins = world_.arena->Get(Request(TenantOf(n), {&key, 1}), reader.stream());
      ASSERT_TRUE(pins && (*pins)->records().front()) << n;
      reader.Read(*(*pins)->records().front(), samples_.at(n));
    }
    reader.Check();
    EXPECT_EQ(world_.store->stats().corrupt_records, 0U);
  }

 private:
  class Thread {
   public:
    Thread(Traffic& traffic, uint64_t thread, bool refusing)
        : traffic_(traffic),
          thread_(thread),
          tenant_(thread % kTenants),
          refusing_(refusing),
          random_(TestSeed() + static_cast<uint32_t>(thread)),
          reader_(*traffic.world_.device) {}

    void Run(int steps) {
      for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) Step();
      while (!held_.empty()) Release();
      reader_.Check();
    }

   private:
    struct Held {
      std::shared_ptr<DevicePins> pins;
      std::vector<uint64_t> numbers;  // of what it pins
    };

    void Step() {
      switch (random_.Between(0, 9)) {
        case 0:
          reader_.Check();
          break;
        case 1:
          (void)traffic_.world_.arena->Prefetch(Some());
          break;
        case 2:
        case 3:
          ComeOrGo(random_.Between<uint64_t>(0, 2));
          break;
        case 4:
        case 5:
        case 6:
          if (!held_.empty()) Release();
          break;
        default:
          Get();
      }
      const DeviceArenaStats stats = traffic_.world_.arena->stats();
      EXPECT_LE(stats.bytes, stats.budget);
      EXPECT_LE(stats.pinned_bytes, stats.bytes);
    }

    DeviceRequest Some() {
      numbers_.clear();
      keys_.clear();
      const int count = random_.Between(1, 4);
      for (int i = 0; i < count; ++i) {
        numbers_.push_back(random_.Chance(0.8)
                               ? random_.Between<uint64_t>(1, kLasting)
                               : Volatile(random_.Between<uint64_t>(0, kThreads - 1),
                                          random_.Between<uint64_t>(0, 2)));
        keys_.push_back(SampleKey(numbers_.back()));
      }
      return traffic_.Request(tenant_, keys_);
    }

    void Get() {
      const auto pins = traffic_.world_.arena->Get(Some(), reader_.stream());
      if (!pins) {
        EXPECT_TRUE(refusing_) << pins.error().message;
        return;
      }
      Held held{*pins, {}};
      for (size_t i = 0; i < numbers_.size(); ++i) {
        const uint64_t n = numbers_[i];
        const Result<DeviceKv>& record = (*pins)->records()[i];
        if (!record) {
          const Code code = record.error().code;
          const bool missing = code == Code::kNotFound && (TenantOf(n) != tenant_ || n > kLasting);
          EXPECT_TRUE(missing || code == Code::kExhausted ||
                      (refusing_ && code == Code::kTransient))
              << record.error().message;
          continue;
        }
        EXPECT_EQ(TenantOf(n), tenant_);
        const Sample& want = traffic_.samples_.at(n);
        traffic_.model_.Add(n, want.payload.size());
        held.numbers.push_back(n);
        EXPECT_TRUE(reader_.Read(*record, want) || refusing_);
      }
      held_.push_back(std::move(held));
    }

    void Release() {
      const auto at =
          held_.begin() + random_.Between<ptrdiff_t>(0, static_cast<ptrdiff_t>(held_.size()) - 1);
      for (const uint64_t n : at->numbers) {
        traffic_.model_.Remove(n, traffic_.samples_.at(n).payload.size());
      }
      if (random_.Chance(0.5)) at->pins->Release();
      held_.erase(at);
    }

    void ComeOrGo(uint64_t i) {
      const uint64_t n = Volatile(thread_, i);
      if (random_.Chance(0.6)) {
        traffic_.Put(n);
        return;
      }
      const Hash128 key = SampleKey(n);
      EXPECT_TRUE(EraseSamples(*traffic_.world_.store, {n}));
      if (random_.Chance(0.7)) traffic_.world_.arena->Forget({&key, 1});
      const auto pins =
          traffic_.world_.arena->Get(traffic_.Request(TenantOf(n), {&key, 1}), reader_.stream());
      ASSERT_TRUE(pins);
      const Result<DeviceKv>& record = (*pins)->records().front();
      ASSERT_FALSE(record) << "erased, and still there";
      EXPECT_EQ(record.error().code, Code::kNotFound);
    }

    Traffic& traffic_;
    const uint64_t thread_, tenant_;
    const bool refusing_;
    Random random_;
    DeviceReader reader_;
    std::vector<Held> held_;
    std::vector<uint64_t> numbers_;
    std::vector<Hash128> keys_;
  };

  void AddSample(uint64_t n) { samples_.emplace(n, MakeSample(n, TenantName(TenantOf(n)))); }
  void Put(uint64_t n) {
    const KvPut put = samples_.at(n).Put();
    const Status status = world_.store->Put({&put, 1});
    ASSERT_TRUE(status) << status.error().message;
  }
  DeviceRequest Request(uint64_t tenant, std::span<const Hash128> keys) const {
    return {{TenantName(tenant), kSampleFingerprint, kSampleShape}, keys};
  }

  DeviceWorld world_;
  std::map<uint64_t, Sample> samples_;
  PinModel model_;
};

TEST(DeviceTraffic, EveryReaderSeesItsRecords) {
  Traffic traffic;
  traffic.Run(200, false);
  const DeviceArenaStats stats = traffic.world().arena->stats();
  EXPECT_GT(stats.hits, 0U);
  EXPECT_GT(stats.evictions, 0U);
  EXPECT_GT(stats.overtakes, 0U);
  traffic.ExpectSound();
}

TEST(DeviceTraffic, RefusalsOfTheDeviceBreakNothing) {
  Traffic traffic;
  SetEmulatedRules({.lazy = true, .seed = TestSeed(), .refuse_copy = 0.1, .refuse_event = 0.1});
  traffic.Run(200, true);
  traffic.ExpectSound();
}

}  // namespace
}  // namespace inferscale
