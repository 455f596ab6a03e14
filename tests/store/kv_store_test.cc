#include "store/kv_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "sample.h"

namespace inferscale {
namespace {

class KvStoreTest : public testing::Test {
 protected:
  KvStoreTest() : options_(SampleOptions(dir_.path())) { Reopen(); }

  void Reopen() {
    store_.reset();
    auto opened = KvStore::Open(SystemEnv(), clock_, options_);
    ASSERT_TRUE(opened) << opened.error().message;
    store_ = std::move(*opened);
  }

  std::vector<std::string> SegmentFiles() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.path())) {
      if (entry.path().extension() == ".seg") files.push_back(entry.path());
    }
    return files;
  }

  // Is `needle` in any file of the directory?
  bool OnDisk(ByteSpan needle) const {
    const std::string text(reinterpret_cast<const char*>(needle.data()), needle.size());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.path())) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      if (bytes.find(text) != std::string::npos) return true;
    }
    return false;
  }

  TempDir dir_;
  ManualClock clock_{1'700'000'000'000};
  KvStoreOptions options_;
  std::unique_ptr<KvStore> store_;
};

Code ErrorOf(const auto& result) { return result ? Code{} : result.error().code; }

TEST_F(KvStoreTest, KeepsRecordsAcrossAReopen) {
  EXPECT_EQ(store_->stats().recovery, Recovery::kEmpty);
  ASSERT_TRUE(PutSamples(*store_, {1, 2, 3}));
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    for (const uint64_t n : {1U, 2U, 3U}) {
      const auto kv = GetSample(*store_, n);
      ASSERT_TRUE(kv) << kv.error().message;
      EXPECT_EQ((*kv)->tier(), tier);
      EXPECT_TRUE(IsSample(**kv, n));
    }
    Reopen();
  }
  EXPECT_EQ(store_->stats().recovery, Recovery::kRecovered);
  EXPECT_EQ(store_->stats().records, 3U);
  EXPECT_TRUE(store_->Contains(SampleKey(1)));
  EXPECT_FALSE(store_->Contains(SampleKey(4)));
  EXPECT_EQ(store_->Keys()->size(), 3U);
}

TEST_F(KvStoreTest, APinOutlivesTheStore) {
  ASSERT_TRUE(PutSamples(*store_, {7}));
  const auto kv = GetSample(*store_, 7);
  ASSERT_TRUE(kv);
  store_.reset();
  EXPECT_TRUE(IsSample(**kv, 7));
}

TEST_F(KvStoreTest, AKeyThatExistsIsLeftAsItIs) {
  ASSERT_TRUE(PutSamples(*store_, {1}));
  Sample other = MakeSample(2);
  other.info.key = SampleKey(1);
  ASSERT_TRUE(store_->Put(std::vector<KvPut>{other.Put(), other.Put()}));
  EXPECT_EQ(store_->stats().records, 1U);
  EXPECT_TRUE(IsSample(**GetSample(*store_, 1), 1));
  Reopen();
  EXPECT_TRUE(IsSample(**GetSample(*store_, 1), 1));
}

TEST_F(KvStoreTest, RefusesWhatIsNoRecord) {
  const auto put = [&](auto change) {
    Sample sample = MakeSample(1);
    change(sample);
    return ErrorOf(store_->Put(std::vector<KvPut>{sample.Put()}));
  };
  EXPECT_EQ(put([](Sample& s) { s.payload.pop_back(); }), Code::kInvalid);
  EXPECT_EQ(put([](Sample& s) { s.info.tokens.clear(); }), Code::kInvalid);
  EXPECT_EQ(put([](Sample& s) { s.info.shape.layers = 0; }), Code::kInvalid);
  EXPECT_EQ(put([](Sample& s) { s.info.key = {}; }), Code::kInvalid);
  EXPECT_EQ(put([](Sample& s) { s.info.fingerprint = {}; }), Code::kInvalid);
  EXPECT_EQ(put([](Sample& s) { s.info.tenant.assign(70'000, 'x'); }), Code::kInvalid);
  EXPECT_EQ(store_->stats().records, 0U);
  EXPECT_TRUE(SegmentFiles().empty());
}

TEST_F(KvStoreTest, OtherModelsAreAConflict) {
  ASSERT_TRUE(PutSamples(*store_, {1}));
  KvShape longer = kSampleShape;
  longer.layers = 3;
  KvShape same_size = kSampleShape;
  same_size.kv_heads *= 2;
  same_size.layers /= 2;
  for (int round = 0; round < 2; ++round) {  // from the arena, then from the disk
    EXPECT_EQ(ErrorOf(store_->Get(SampleKey(1), {1, 2}, kSampleShape)), Code::kConflict);
    EXPECT_EQ(ErrorOf(store_->Get(SampleKey(1), kSampleFingerprint, longer)), Code::kConflict);
    EXPECT_EQ(ErrorOf(store_->Get(SampleKey(1), kSampleFingerprint, same_size)), Code::kConflict);
    Reopen();
  }
  EXPECT_TRUE(GetSample(*store_, 1));
}

TEST_F(KvStoreTest, EraseIsForEveryTier) {
  ASSERT_TRUE(PutSamples(*store_, {1, 2}));
  auto pinned = GetSample(*store_, 1);
  ASSERT_TRUE(pinned);
  const uint64_t both = store_->stats().arena_bytes;
  ASSERT_TRUE(EraseSamples(*store_, {1, 99}));
  EXPECT_EQ(ErrorOf(GetSample(*store_, 1)), Code::kNotFound);
  EXPECT_FALSE(store_->Contains(SampleKey(1)));
  EXPECT_TRUE(IsSample(**pinned, 1));  // whoever uses it may end
  EXPECT_EQ(store_->stats().arena_bytes, both);
  pinned->reset();
  EXPECT_LT(store_->stats().arena_bytes, both);
  Reopen();
  EXPECT_EQ(ErrorOf(GetSample(*store_, 1)), Code::kNotFound);
  EXPECT_TRUE(IsSample(**GetSample(*store_, 2), 2));
}

TEST_F(KvStoreTest, AKeyCanComeBackWhileItsErasedRecordIsPinned) {
  ASSERT_TRUE(PutSamples(*store_, {1}));
  auto before = GetSample(*store_, 1);
  ASSERT_TRUE(EraseSamples(*store_, {1}));
  ASSERT_TRUE(PutSamples(*store_, {1}));
  auto after = GetSample(*store_, 1);
  ASSERT_TRUE(after);
  EXPECT_NE((*before)->view().data, (*after)->view().data);
  before->reset();
  EXPECT_TRUE(IsSample(**after, 1));
  EXPECT_TRUE(IsSample(**GetSample(*store_, 1), 1));
}

TEST_F(KvStoreTest, ErasedBytesLeaveTheDiskWithAFullCompaction) {
  std::vector<uint64_t> all(40);
  for (uint64_t n = 0; n < all.size(); ++n) all[n] = n + 1;
  ASSERT_TRUE(PutSamples(*store_, all));
  const Sample gone = MakeSample(5, "tenant");
  const ByteSpan payload = ByteSpan(gone.payload).first(64);
  const ByteSpan tokens = std::as_bytes(std::span(gone.info.tokens));
  const std::array<uint64_t, 2> key{gone.info.key.high, gone.info.key.low};
  const ByteSpan key_bytes = std::as_bytes(std::span(key));
  ASSERT_GE(tokens.size(), 8U);
  EXPECT_TRUE(OnDisk(payload) && OnDisk(tokens) && OnDisk(key_bytes));

  ASSERT_TRUE(EraseSamples(*store_, {5}));
  const auto report = store_->Compact(true);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->segments_rewritten, 1U);
  EXPECT_GT(report->bytes_freed, 0U);
  EXPECT_FALSE(OnDisk(payload) || OnDisk(tokens) || OnDisk(key_bytes));

  Reopen();
  EXPECT_EQ(store_->stats().recovery, Recovery::kRecovered);
  for (const uint64_t n : all) {
    const auto kv = GetSample(*store_, n);
    ASSERT_EQ(kv.has_value(), n != 5) << n;
    EXPECT_TRUE(n == 5 || IsSample(**kv, n));
  }
}

TEST_F(KvStoreTest, CompactionTakesSegmentsBelowTheShareOnly) {
  for (uint64_t n = 1; n <= 60; ++n) ASSERT_TRUE(PutSamples(*store_, {n}));
  const size_t before = SegmentFiles().size();
  ASSERT_GE(before, 4U);
  EXPECT_EQ(store_->Compact(false)->segments_removed, 0U);
  // The oldest records, so the first segments lose everything and the last ones nothing.
  for (uint64_t n = 1; n <= 30; ++n) ASSERT_TRUE(EraseSamples(*store_, {n}));
  const KvStoreStats full = store_->stats();
  const auto report = store_->Compact(false);
  ASSERT_TRUE(report);
  EXPECT_GE(report->segments_removed, 1U);
  EXPECT_LE(report->segments_rewritten, 1U);
  EXPECT_LT(store_->stats().disk_bytes, full.disk_bytes);
  EXPECT_EQ(store_->stats().records, 30U);
  for (uint64_t n = 31; n <= 60; ++n) EXPECT_TRUE(IsSample(**GetSample(*store_, n), n));
  ASSERT_TRUE(PutSamples(*store_, {61}));  // the active segment is still in use
}

TEST_F(KvStoreTest, ADiskQuotaIsOfAllocatedBlocks) {
  options_.disk_bytes = 200 << 10;
  Reopen();
  uint64_t n = 0;
  Status put;
  while ((put = PutSamples(*store_, {++n})) && n < 1000) {
  }
  EXPECT_EQ(ErrorOf(put), Code::kExhausted);
  EXPECT_LE(store_->stats().disk_bytes, options_.disk_bytes);
  // Erasing alone frees no block; compacting does.
  for (uint64_t i = 1; i < n; ++i) ASSERT_TRUE(EraseSamples(*store_, {i}));
  EXPECT_EQ(ErrorOf(PutSamples(*store_, {n})), Code::kExhausted);
  ASSERT_TRUE(store_->Compact(true));
  EXPECT_TRUE(PutSamples(*store_, {n}));
}

TEST_F(KvStoreTest, ATenantsDiskQuotaIsItsOwn) {
  options_.tenant_disk_bytes = 64 << 10;
  Reopen();
  uint64_t n = 0;
  const auto put = [&](const std::string& tenant) {
    return store_->Put(std::vector<KvPut>{MakeSample(++n, tenant).Put()});
  };
  while (put("ana") && n < 1000) {
  }
  ASSERT_LT(n, 100U);
  EXPECT_TRUE(put("ben"));
  ASSERT_TRUE(EraseSamples(*store_, {1}));
  ASSERT_TRUE(EraseSamples(*store_, {2}));
  ASSERT_TRUE(EraseSamples(*store_, {3}));
  EXPECT_TRUE(put("ana"));
}

TEST_F(KvStoreTest, PinsCanExhaustTheArena) {
  options_.arena_bytes = 64 << 10;
  Reopen();
  std::vector<uint64_t> numbers(20);
  for (uint64_t n = 0; n < numbers.size(); ++n) numbers[n] = n + 1;
  ASSERT_TRUE(PutSamples(*store_, numbers));
  std::vector<std::shared_ptr<const PinnedKv>> pins;
  Code last{};
  for (const uint64_t n : numbers) {
    auto kv = GetSample(*store_, n);
    if (!kv) {
      last = kv.error().code;
      break;
    }
    pins.push_back(std::move(*kv));
  }
  EXPECT_EQ(last, Code::kExhausted);
  for (size_t i = 0; i < pins.size(); ++i) EXPECT_TRUE(IsSample(*pins[i], i + 1));
  EXPECT_LE(store_->stats().arena_bytes, options_.arena_bytes);
  pins.clear();
  for (const uint64_t n : numbers) EXPECT_TRUE(IsSample(**GetSample(*store_, n), n));
  EXPECT_GT(store_->stats().evictions, 0U);
}

TEST_F(KvStoreTest, TwoStoresShareADirectory) {
  auto other = KvStore::Open(SystemEnv(), clock_, options_);
  ASSERT_TRUE(other) << other.error().message;
  ASSERT_TRUE(PutSamples(*store_, {1, 2}));
  ASSERT_TRUE(PutSamples(**other, {2, 3, 4}));
  EXPECT_TRUE(IsSample(**GetSample(*store_, 4), 4));
  EXPECT_TRUE(IsSample(**GetSample(**other, 1), 1));
  // What one erases the other does not serve from its memory.
  ASSERT_TRUE(EraseSamples(**other, {1}));
  EXPECT_EQ(ErrorOf(GetSample(*store_, 1)), Code::kNotFound);
  // The other's active segment stays; its own is rewritten, and the other finds what moved.
  ASSERT_TRUE(PutSamples(*store_, {5}));
  ASSERT_TRUE(EraseSamples(*store_, {3}));
  const auto report = store_->Compact(true);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->segments_rewritten, 1U);
  EXPECT_TRUE(IsSample(**GetSample(**other, 5), 5));
  ASSERT_TRUE(PutSamples(**other, {6}));
  for (const uint64_t n : {2U, 4U, 5U, 6U}) EXPECT_TRUE(IsSample(**GetSample(*store_, n), n));
  ASSERT_TRUE((*other)->Compact(true));
  EXPECT_FALSE(OnDisk(ByteSpan(MakeSample(3).payload).first(64)));
  for (const uint64_t n : {2U, 4U, 5U, 6U}) EXPECT_TRUE(IsSample(**GetSample(*store_, n), n));
}

TEST_F(KvStoreTest, ASegmentInUseIsLetGoWhenACompactionAsks) {
  options_.seal_patience = std::chrono::milliseconds(0);
  Reopen();
  auto other = KvStore::Open(SystemEnv(), clock_, options_);
  ASSERT_TRUE(other);
  ASSERT_TRUE(PutSamples(**other, {1, 2, 3}));
  ASSERT_TRUE((*other)->SealWhereAsked());  // nobody did
  ASSERT_TRUE(EraseSamples(*store_, {2}));
  const Sample gone = MakeSample(2, "tenant");
  const ByteSpan payload = ByteSpan(gone.payload).first(64);
  EXPECT_EQ(store_->Compact(true)->segments_busy, 1U);
  EXPECT_TRUE(OnDisk(payload));
  EXPECT_GT((*other)->stats().arena_bytes, 0U);
  const uint64_t held = (*other)->stats().arena_bytes;
  ASSERT_TRUE((*other)->SealWhereAsked());
  EXPECT_LT((*other)->stats().arena_bytes, held);  // nor is it in its memory
  const auto report = store_->Compact(true);
  EXPECT_EQ(report->segments_busy, 0U);
  EXPECT_EQ(report->segments_rewritten, 1U);
  EXPECT_FALSE(OnDisk(payload));
  ASSERT_TRUE(PutSamples(**other, {4}));  // into a new one
  for (const uint64_t n : {1U, 3U, 4U}) EXPECT_TRUE(IsSample(**GetSample(**other, n), n));
  // Nothing is left of the question; one that was never answered goes with a later compaction.
  EXPECT_EQ(store_->Compact(true)->segments_busy, 1U);
  other->reset();
  ASSERT_TRUE(store_->Compact(true));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options_.dir)) {
    EXPECT_NE(entry.path().extension(), ".seal") << entry.path();
  }
}

}  // namespace
}  // namespace inferscale
