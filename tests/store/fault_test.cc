// What a store promises must hold when any call of the system fails and when the power goes.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "fault_env.h"
#include "sample.h"

namespace inferscale {
namespace {

// What is known of a record from the answers that the store gave.
enum class Known : uint8_t { kAbsent, kPresent, kEither };

// Runs operations and remembers what was acknowledged. Never more than one fault at a time may be
// due, so an operation that fails for another reason than the fault is a mistake of the store.
class Ledger {
 public:
  Ledger(FaultEnv& env, KvStoreOptions options) : env_(env), options_(std::move(options)) {}

  bool Open() {
    auto opened = KvStore::Open(env_, clock_, options_);
    if (!opened) {
      EXPECT_EQ(opened.error().code, Code::kTransient) << opened.error().message;
      EXPECT_TRUE(env_.failed()) << opened.error().message;
      return false;
    }
    store_ = std::move(*opened);
    EXPECT_NE(store_->stats().recovery, Recovery::kCorrupt);
    return true;
  }
  void Close() { store_.reset(); }
  KvStore* store() { return store_.get(); }

  void Put(const std::vector<uint64_t>& numbers) {
    std::vector<uint64_t> fresh;
    for (const uint64_t n : numbers) {
      if (known_[n] == Known::kAbsent) fresh.push_back(n);
    }
    const Status put = PutSamples(*store_, numbers);
    ExpectOnlyTheFault(put);
    for (const uint64_t n : numbers) known_[n] = put ? Known::kPresent : known_[n];
    if (put || fresh.empty()) return;
    for (const uint64_t n : fresh) known_[n] = Known::kEither;
    groups_.push_back(fresh);
  }

  void Erase(const std::vector<uint64_t>& numbers) {
    const Status erased = EraseSamples(*store_, numbers);
    ExpectOnlyTheFault(erased);
    for (const uint64_t n : numbers) {
      if (known_[n] != Known::kAbsent) known_[n] = erased ? Known::kAbsent : Known::kEither;
    }
    // What was put together may now have been erased in part.
    groups_.clear();
  }

  void Get(uint64_t n) {
    const auto kv = GetSample(*store_, n);
    if (kv) {
      EXPECT_NE(known_[n], Known::kAbsent) << n << " was erased or never put";
      EXPECT_TRUE(IsSample(**kv, n)) << n << " has the KV of another record";
    } else if (kv.error().code == Code::kNotFound) {
      EXPECT_NE(known_[n], Known::kPresent) << n << " was acknowledged and is lost";
    } else {
      ExpectOnlyTheFault(Status(tl::unexpected(kv.error())));
    }
  }

  void Compact(bool full) {
    const auto report = store_->Compact(full);
    if (!report) ExpectOnlyTheFault(Status(tl::unexpected(report.error())));
  }

  // Without faults: everything that was acknowledged is there, nothing else.
  void CheckAll() {
    for (const std::vector<uint64_t>& group : groups_) {
      size_t there = 0;
      for (const uint64_t n : group) there += store_->Contains(SampleKey(n)) ? 1 : 0;
      EXPECT_TRUE(there == 0 || there == group.size()) << "a Put was done in part";
    }
    for (const auto& [n, known] : known_) Get(n);
    const auto keys = store_->Keys();
    ASSERT_TRUE(keys) << keys.error().message;
    for (const Hash128& key : *keys) EXPECT_NE(known_[key.high], Known::kAbsent);
    EXPECT_EQ(store_->stats().records, keys->size());
    EXPECT_EQ(store_->stats().corrupt_records, 0U);
  }

  // After a new start nothing is undecided. Before it, what failed at the last moment may still
  // turn out to have reached the disk.
  void Settle() {
    CheckAll();
    groups_.clear();
    for (auto& [n, known] : known_) {
      known = store_->Contains(SampleKey(n)) ? Known::kPresent : Known::kAbsent;
    }
  }

  std::vector<uint64_t> Numbers(std::mt19937_64& random, size_t count) {
    std::vector<uint64_t> out;
    for (size_t i = 0; i < count; ++i) out.push_back(1 + random() % 30);
    return out;
  }

 private:
  template <typename T>
  void ExpectOnlyTheFault(const T& status) {
    if (status) return;
    EXPECT_EQ(status.error().code, Code::kTransient) << status.error().message;
    EXPECT_TRUE(env_.failed()) << status.error().message;
  }

  FaultEnv& env_;
  KvStoreOptions options_;
  ManualClock clock_{1'700'000'000'000};
  std::unique_ptr<KvStore> store_;
  std::map<uint64_t, Known> known_;
  std::vector<std::vector<uint64_t>> groups_;  // Puts that were not acknowledged
};

KvStoreOptions SmallSegments(const std::string& root) {
  KvStoreOptions options = SampleOptions(root + "/kv");
  options.segment_bytes = 40 << 10;  // so that the script rolls them
  options.arena_bytes = 64 << 10;    // and reads some from the disk
  return options;
}

// Every kind of operation, several segments, dead bytes for both kinds of compaction.
void RunScript(Ledger& ledger) {
  ledger.Put({1, 2, 3});
  ledger.Put({4, 5});
  ledger.Get(1);
  ledger.Erase({2, 9});
  ledger.Put({6, 7, 8});
  ledger.Compact(false);
  ledger.Put({2, 10});
  ledger.Erase({1, 3, 4});
  ledger.Compact(true);
  for (uint64_t n = 1; n <= 10; ++n) ledger.Get(n);
  ledger.Put({11, 4});
}

// Runs the script with the call `number` failing, then looks at what is left.
void FailOnce(uint64_t number, bool then_cut) {
  TempDir dir(TempDir::Where::kMemory);
  FaultEnv env(dir.path(), number);
  Ledger ledger(env, SmallSegments(dir.path()));
  env.FailCall(number);
  ASSERT_TRUE(ledger.Open() || ledger.Open());
  RunScript(ledger);
  ASSERT_TRUE(env.failed());
  ledger.CheckAll();  // the same process goes on
  if (then_cut) env.CutPowerAt(env.calls() + 1);
  ledger.Close();
  if (then_cut) env.PowerOn();
  ASSERT_TRUE(ledger.Open());
  ledger.Settle();
  ledger.Compact(true);
  ledger.CheckAll();
}

void FailEveryCallOnce(bool then_cut) {
  uint64_t calls = 0;
  {
    TempDir dir(TempDir::Where::kMemory);
    FaultEnv env(dir.path(), 0);
    Ledger ledger(env, SmallSegments(dir.path()));
    ASSERT_TRUE(ledger.Open());
    RunScript(ledger);
    calls = env.calls();
  }
  ASSERT_GT(calls, 200U);
  for (uint64_t number = 1; number <= calls; ++number) {
    SCOPED_TRACE(testing::Message() << "call " << number << " of " << calls);
    FailOnce(number, then_cut);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Fault, EveryCallMayFailOnce) { FailEveryCallOnce(false); }

TEST(Fault, EveryCallMayFailOnceBeforeThePowerGoes) { FailEveryCallOnce(true); }

TEST(Fault, PowerCutsAtAnyTime) {
  const uint64_t seed = std::random_device()();
  for (uint64_t life = 0; life < 12; ++life) {
    SCOPED_TRACE(testing::Message() << "seed " << seed + life);
    std::mt19937_64 random(seed + life);
    TempDir dir(TempDir::Where::kMemory);
    FaultEnv env(dir.path(), seed + life);
    Ledger ledger(env, SmallSegments(dir.path()));
    for (int cut = 0; cut < 12; ++cut) {
      env.CutPowerAt(env.calls() + 1 + random() % 400);
      bool open = ledger.Open();
      while (open && !env.failed()) {
        switch (random() % 8) {
          case 0:
            ledger.Compact(random() % 2 == 0);
            break;
          case 1:
          case 2:
            ledger.Erase(ledger.Numbers(random, 1 + random() % 4));
            break;
          case 3:
            ledger.Get(1 + random() % 30);
            break;
          default:
            ledger.Put(ledger.Numbers(random, 1 + random() % 4));
        }
      }
      ledger.Close();
      env.PowerOn();
      ASSERT_TRUE(ledger.Open());
      ledger.Settle();
      ledger.Close();
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace inferscale
