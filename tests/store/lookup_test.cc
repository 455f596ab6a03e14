// What the store remembers of its catalog, while others change it.
#include "store/lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "../kv/seed.h"
#include "sample.h"

namespace inferscale {
namespace {

const KvOwner kOwner = {"tenant", kSampleFingerprint, kSampleShape};

Code CodeOf(const auto& result) { return result ? Code{} : result.error().code; }

// Two stores over one directory, as two processes have them.
class LookupTest : public testing::Test {
 protected:
  LookupTest() {
    for (auto& store : stores_) {
      store = KvStore::Open(SystemEnv(), clock_, SampleOptions(dir_.path())).value();
    }
  }
  KvStore& mine() { return *stores_[0]; }
  KvStore& other() { return *stores_[1]; }

  static Code Check(KvStore& store, uint64_t n, const KvOwner& owner, uint32_t first,
                    std::span<const Token> expected) {
    const KvClaim claim = {SampleKey(n), first, expected};
    return CodeOf(store.Check(owner, {&claim, 1}).front());
  }
  static Code Check(KvStore& store, uint64_t n) {
    return Check(store, n, kOwner, 0, MakeSample(n).info.tokens);
  }
  static Result<std::shared_ptr<const PinnedKv>> Resident(KvStore& store, uint64_t n,
                                                          const KvOwner& owner = kOwner) {
    const Hash128 key = SampleKey(n);
    return std::move(store.GetResident(owner, {&key, 1}).front());
  }
  static std::vector<size_t> Missing(KvStore& store, const std::vector<uint64_t>& numbers) {
    std::vector<Hash128> keys;
    for (const uint64_t n : numbers) keys.push_back(SampleKey(n));
    return store.Missing(keys).value();
  }

  TempDir dir_{TempDir::Where::kMemory};
  SystemClock clock_;
  std::unique_ptr<KvStore> stores_[2];
};

TEST_F(LookupTest, SeesWhatTheOtherAddsAndErases) {
  EXPECT_EQ(Missing(mine(), {1, 2, 1}), (std::vector<size_t>{0, 1, 2}));
  ASSERT_TRUE(PutSamples(other(), {1, 2}));
  EXPECT_EQ(Missing(mine(), {1, 2, 3, 1}), (std::vector<size_t>{2}));
  EXPECT_EQ(Check(mine(), 1), Code{});
  ASSERT_TRUE(GetSample(mine(), 1));
  ASSERT_TRUE(Resident(mine(), 1));
  EXPECT_TRUE(IsSample(**Resident(mine(), 1), 1));
  ASSERT_TRUE(EraseSamples(other(), {1}));
  EXPECT_EQ(CodeOf(Resident(mine(), 1)), Code::kNotFound);
  EXPECT_EQ(Missing(mine(), {1, 2}), (std::vector<size_t>{0}));
  EXPECT_EQ(Check(mine(), 1), Code::kNotFound);
  EXPECT_EQ(Check(mine(), 2), Code{});
  EXPECT_TRUE(Missing(mine(), {}).empty());
}

TEST_F(LookupTest, OnlyWhatIsInTheArenaIsResident) {
  ASSERT_TRUE(PutSamples(other(), {1}));
  const auto before = Resident(mine(), 1);
  ASSERT_TRUE(before);
  EXPECT_EQ(*before, nullptr);
  ASSERT_TRUE(GetSample(mine(), 1));
  const auto after = Resident(mine(), 1);
  ASSERT_TRUE(after && *after);
  EXPECT_EQ((*after)->tier(), Tier::kHost);
  EXPECT_EQ(mine().stats().disk_reads, 1U);
  EXPECT_EQ(CodeOf(Resident(mine(), 1, {"other", kSampleFingerprint, kSampleShape})),
            Code::kNotFound);
  // Get says what is wrong.
  const auto conflict = Resident(mine(), 1, {"tenant", {1, 2}, kSampleShape});
  ASSERT_TRUE(conflict);
  EXPECT_EQ(*conflict, nullptr);
}

TEST_F(LookupTest, AClaimIsComparedWithTheRecord) {
  ASSERT_TRUE(PutSamples(mine(), {1}));
  std::vector<Token> tokens = MakeSample(1).info.tokens;
  const auto count = static_cast<uint32_t>(tokens.size());
  EXPECT_EQ(Check(mine(), 1, kOwner, 0, tokens), Code{});
  EXPECT_EQ(Check(mine(), 1, kOwner, count, {}), Code{});
  EXPECT_EQ(Check(mine(), 1, kOwner, 1, tokens), Code::kInvalid);
  EXPECT_EQ(Check(mine(), 1, kOwner, count + 1, {}), Code::kInvalid);
  EXPECT_EQ(Check(mine(), 1, {"other", kSampleFingerprint, kSampleShape}, 0, tokens),
            Code::kNotFound);
  EXPECT_EQ(Check(mine(), 1, {"tenant", {1, 2}, kSampleShape}, 0, tokens), Code::kConflict);
  KvShape shape = kSampleShape;
  shape.dtype = Dtype::kBF16;
  EXPECT_EQ(Check(mine(), 1, {"tenant", kSampleFingerprint, shape}, 0, tokens), Code::kConflict);
  tokens.back() += 1;
  EXPECT_EQ(Check(mine(), 1, kOwner, 0, tokens), Code::kConflict);
}

TEST_F(LookupTest, RecordsAskedForLatelyAreNotReadAgain) {
  ASSERT_TRUE(PutSamples(mine(), {1, 2}));
  EXPECT_EQ(Check(mine(), 1), Code{});
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.path())) {
    if (entry.path().extension() == ".seg") std::filesystem::resize_file(entry.path(), 1);
  }
  EXPECT_EQ(Check(mine(), 1), Code{});
  // Also if something else has changed.
  ASSERT_TRUE(EraseSamples(other(), {99}));
  ASSERT_TRUE(PutSamples(other(), {3}));
  EXPECT_EQ(Check(mine(), 1), Code{});
  EXPECT_EQ(Check(mine(), 2), Code::kCorrupt);
  EXPECT_EQ(Check(mine(), 2), Code::kNotFound);
  EXPECT_EQ(mine().stats().corrupt_records, 1U);
}

TEST_F(LookupTest, AKeyThatComesBackWithOtherTokensIsAnotherRecord) {
  ASSERT_TRUE(PutSamples(mine(), {1}));
  EXPECT_EQ(Check(mine(), 1), Code{});
  ASSERT_TRUE(EraseSamples(other(), {1}));
  Sample changed = MakeSample(1);
  changed.info.tokens.front() += 1;
  const KvPut put = changed.Put();
  ASSERT_TRUE(other().Put({&put, 1}));
  EXPECT_EQ(Check(mine(), 1), Code::kConflict);
  EXPECT_EQ(Check(mine(), 1, kOwner, 0, changed.info.tokens), Code{});
}

// Whatever either does, both answer as a plain model does.
TEST_F(LookupTest, RandomHistory) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  constexpr uint64_t kRecords = 12;
  std::map<uint64_t, bool> exists;
  for (int step = 0; step < 400 && !HasFailure(); ++step) {
    KvStore& store = random.Chance(0.5) ? mine() : other();
    const auto n = random.Between<uint64_t>(1, kRecords);
    switch (random.Between(0, 9)) {
      case 0:
      case 1:
        ASSERT_TRUE(PutSamples(store, {n}));
        exists[n] = true;
        break;
      case 2:
        ASSERT_TRUE(EraseSamples(store, {n}));
        exists[n] = false;
        break;
      case 3:
        if (random.Chance(0.2)) {
          ASSERT_TRUE(store.Compact(random.Chance(0.5)));
        }
        break;
      case 4:
        EXPECT_EQ(GetSample(store, n).has_value(), exists[n]);
        break;
      default: {
        std::vector<uint64_t> asked(random.Between<size_t>(0, 5));
        for (uint64_t& one : asked) one = random.Between<uint64_t>(1, kRecords);
        std::vector<size_t> want;
        for (size_t i = 0; i < asked.size(); ++i) {
          if (!exists[asked[i]]) want.push_back(i);
        }
        EXPECT_EQ(Missing(store, asked), want);
        EXPECT_EQ(Check(store, n), exists[n] ? Code{} : Code::kNotFound);
        const auto resident = Resident(store, n);
        EXPECT_EQ(resident.has_value(), exists[n]);
        if (resident && *resident != nullptr) {
          EXPECT_TRUE(IsSample(**resident, n));
        }
      }
    }
  }
}

}  // namespace
}  // namespace inferscale
