// Leases, captures and erasures from several threads, on streams of their own.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "plain_engine.h"

namespace inferscale {
namespace {

constexpr uint64_t kLasting = 12;  // records 1 to 12; those from 100 on come and go
constexpr int kThreads = 4;

class CapiThreads : public testing::TestWithParam<Place> {};
INSTANTIATE_TEST_SUITE_P(Places, CapiThreads, testing::Values(Place::kHost, Place::kDevice),
                         [](const auto& at) {
                           return at.param == Place::kHost ? "Host" : "Device";
                         });

class Worker {
 public:
  Worker(World& world, int thread)
      : world_(world),
        own_(100 + static_cast<uint64_t>(thread)),
        random_(TestSeed() + static_cast<uint32_t>(thread)),
        stream_(NewStream()),
        engine_(world, stream_),
        owner_(world.Owner(PlainEngine::kShape)) {}

  void Run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) Step();
    engine_.Sync();
    if (stream_ != 0) (void)EmulatedCuda().stream_destroy(reinterpret_cast<void*>(stream_));
  }

 private:
  intptr_t NewStream() const {
    void* made = nullptr;
    if (world_.place == Place::kDevice) {
      EXPECT_EQ(EmulatedCuda().stream_create(&made), 0);
    }
    return reinterpret_cast<intptr_t>(made);
  }

  void Step() {
    switch (random_.Between(0, 5)) {
      case 0:
        ComeAndGo();
        break;
      case 1:
        Verify();
        break;
      case 2:  // closed while it may be pending
        (void)world_.Lease(owner_, {Key(random_.Between<uint64_t>(1, kLasting))});
        break;
      default:
        Read();
    }
  }

  void Read() {
    const auto a = random_.Between<uint64_t>(1, kLasting),
               b = random_.Between<uint64_t>(1, kLasting);
    const LeaseHandle lease = world_.Lease(owner_, {Key(a), Key(b)});
    const std::vector<int32_t> codes = world_.Settle(lease.get(), 2);
    const uint64_t numbers[] = {a, b};
    for (uint32_t i = 0; i < 2; ++i) {
      if (codes[i] == INFERSCALE_OK) {
        engine_.ExpectRecord(numbers[i], lease.get(), i);
      } else {
        EXPECT_EQ(codes[i], INFERSCALE_EXHAUSTED);  // others hold what there is
      }
    }
  }

  void Verify() {
    const auto n = random_.Between<uint64_t>(1, kLasting);
    const std::vector<int32_t> tokens = PlainEngine::Tokens(n);
    const inferscale_claim claims[] = {{Key(n), 0, PlainEngine::kTokens, tokens.data()},
                                       {Key(n), 0, 1, tokens.data() + 1},
                                       {Key(own_), 0, 0, nullptr}};
    int32_t codes[3] = {};
    ASSERT_EQ(inferscale_store_verify(world_.store.get(), &owner_, claims, 3, codes, nullptr),
              INFERSCALE_OK);
    EXPECT_EQ(codes[0], INFERSCALE_OK);
    EXPECT_EQ(codes[1], INFERSCALE_CONFLICT);
    EXPECT_EQ(codes[2], INFERSCALE_NOT_FOUND);
  }

  void ComeAndGo() {
    if (engine_.Store(own_, owner_) != INFERSCALE_OK) return;  // others have the room
    ASSERT_EQ(inferscale_tier_flush(world_.tier.get(), nullptr), INFERSCALE_OK);
    const inferscale_key key = Key(own_);
    {
      const LeaseHandle lease = world_.Lease(owner_, {key});
      const int32_t code = world_.Settle(lease.get(), 1).front();
      EXPECT_TRUE(code == INFERSCALE_OK || code == INFERSCALE_EXHAUSTED) << code;
      if (code == INFERSCALE_OK) engine_.ExpectRecord(own_, lease.get(), 0);
      ASSERT_EQ(inferscale_store_erase(world_.store.get(), &key, 1, nullptr), INFERSCALE_OK);
    }
    const LeaseHandle lease = world_.Lease(owner_, {key});
    EXPECT_EQ(world_.Settle(lease.get(), 1).front(), INFERSCALE_NOT_FOUND);
  }

  World& world_;
  const uint64_t own_;
  Random random_;
  const intptr_t stream_;
  PlainEngine engine_;
  const inferscale_owner owner_;
};

TEST_P(CapiThreads, EveryLeaseHasItsRecords) {
  SCOPED_TRACE(TestSeed());
  // So small that records go and come all the time.
  World world(GetParam(), {.host = 9 * 4096, .device = 6 * 4096, .capture = 3 * 4096});
  {
    PlainEngine engine(world, world.stream);
    for (uint64_t n = 1; n <= kLasting; ++n) {
      ASSERT_EQ(engine.Store(n, world.Owner(PlainEngine::kShape)), INFERSCALE_OK);
      ASSERT_EQ(inferscale_tier_flush(world.tier.get(), nullptr), INFERSCALE_OK);
    }
  }
  world.Reopen();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&world, t] { Worker(world, t).Run(60); });
    }
  }
  const inferscale_stats stats = world.Stats();
  EXPECT_EQ(stats.captures_waiting, 0U);
  EXPECT_EQ(stats.captures_failed, 0U);
  EXPECT_EQ(stats.corrupt_records, 0U);
  EXPECT_EQ(stats.records, kLasting);
  EXPECT_GT(stats.disk_reads, kLasting);
  EXPECT_GT(stats.lease_wait_us, 0U);
}

TEST_P(CapiThreads, ATierThatClosesStoresWhatWasCommitted) {
  World world(GetParam());
  PlainEngine engine(world, world.stream);
  for (uint64_t n = 1; n <= 20; ++n) {
    ASSERT_EQ(engine.Store(n, world.Owner(PlainEngine::kShape)), INFERSCALE_OK);
  }
  world.Reopen();
  EXPECT_EQ(world.Stats().records, 20U);
}

}  // namespace
}  // namespace inferscale
