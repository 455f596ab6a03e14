// Bytes that are not what they were: missing or damaged records are told, never served.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "sample.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kRecords = 12;

class Damage : public testing::Test {
 protected:
  Damage() : options_(SampleOptions(dir_.path() + "/kv")) {
    options_.segment_bytes = 256 << 10;
    seed_ = std::random_device()();
    random_.seed(seed_);
  }

  // A store with all records in one segment, closed.
  void Fill() {
    fs::remove_all(options_.dir);
    std::vector<uint64_t> numbers(kRecords);
    for (uint64_t n = 0; n < kRecords; ++n) numbers[n] = n + 1;
    ASSERT_TRUE(PutSamples(*Open(), numbers));
  }

  std::unique_ptr<KvStore> Open() {
    auto store = KvStore::Open(SystemEnv(), clock_, options_);
    EXPECT_TRUE(store) << store.error().message;
    return std::move(*store);
  }

  std::string SegmentPath() const {
    for (const auto& entry : fs::recursive_directory_iterator(options_.dir)) {
      if (entry.path().extension() == ".seg") return entry.path();
    }
    return {};
  }

  void Flip(const std::string& path, uint64_t at) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(at));
    const auto old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(old ^ (1 << random_() % 8)));
  }

  // Every record is itself or told to be gone. How many are there?
  uint64_t CountSound(KvStore& store) {
    uint64_t sound = 0;
    for (uint64_t n = 1; n <= kRecords; ++n) {
      const auto kv = GetSample(store, n);
      if (kv) {
        ++sound;
        EXPECT_TRUE(IsSample(**kv, n)) << "seed " << seed_ << ", record " << n;
        continue;
      }
      EXPECT_TRUE(kv.error().code == Code::kCorrupt || kv.error().code == Code::kNotFound)
          << kv.error().message;
      EXPECT_FALSE(store.Contains(SampleKey(n)));
    }
    return sound;
  }

  TempDir dir_{TempDir::Where::kMemory};
  SystemClock clock_;
  KvStoreOptions options_;
  uint64_t seed_ = 0;
  std::mt19937_64 random_;
};

TEST_F(Damage, AFlippedBitCostsAtMostOneRecord) {
  uint64_t noticed = 0;
  for (int round = 0; round < 60; ++round) {
    Fill();
    Flip(SegmentPath(), random_() % fs::file_size(SegmentPath()));
    auto store = Open();
    const uint64_t sound = CountSound(*store);
    EXPECT_GE(sound, kRecords - 1);
    EXPECT_EQ(store->stats().corrupt_records, kRecords - sound);
    noticed += kRecords - sound;
    // What was lost is encoded again.
    std::vector<uint64_t> numbers(kRecords);
    for (uint64_t n = 0; n < kRecords; ++n) numbers[n] = n + 1;
    ASSERT_TRUE(PutSamples(*store, numbers));
    EXPECT_EQ(CountSound(*store), kRecords);
    if (HasFailure()) return;
  }
  EXPECT_GT(noticed, 20U);  // the rest fell on padding
}

TEST_F(Damage, ACompactionDropsWhatItFindsDamaged) {
  Fill();
  auto store = Open();
  ASSERT_TRUE(EraseSamples(*store, {1}));
  const uint64_t first = 4096 + (MakeSample(1).payload.size() + 4095) / 4096 * 4096;
  Flip(SegmentPath(), first + 4096);  // the payload of record 2
  const auto report = store->Compact(true);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(store->stats().corrupt_records, 1U);
  EXPECT_EQ(CountSound(*store), kRecords - 2);
  EXPECT_FALSE(store->Contains(SampleKey(2)));
}

TEST_F(Damage, ATruncatedSegmentLosesItsEnd) {
  for (int round = 0; round < 20; ++round) {
    Fill();
    const uint64_t whole = fs::file_size(SegmentPath());
    const uint64_t size = random_() % whole;
    const bool while_open = random_() % 2 == 0;
    auto store = while_open ? Open() : nullptr;
    fs::resize_file(SegmentPath(), size);
    if (!while_open) store = Open();
    EXPECT_EQ(store->stats().recovery, while_open ? Recovery::kRecovered : Recovery::kCorrupt);
    const uint64_t sound = CountSound(*store);
    EXPECT_LT(sound, kRecords);
    EXPECT_GE(sound * (24 * 512 + 8192) + 24 * 512 + 8192, size) << "more was lost than cut off";
    EXPECT_EQ(store->stats().corrupt_records, kRecords - sound);
    if (HasFailure()) return;
  }
}

TEST_F(Damage, AMissingSegmentLosesItsRecordsOnly) {
  Fill();
  auto store = Open();
  ASSERT_TRUE(PutSamples(*store, {100}));  // in a second segment
  const std::string first = [&] {
    for (const auto& entry : fs::recursive_directory_iterator(options_.dir)) {
      if (entry.path().extension() == ".seg" && entry.file_size() > (64 << 10)) {
        return entry.path().string();
      }
    }
    return std::string();
  }();
  ASSERT_TRUE(fs::remove(first));
  EXPECT_EQ(CountSound(*store), 0U);
  store = Open();
  EXPECT_EQ(store->stats().recovery, Recovery::kRecovered);  // dropped already, one by one
  EXPECT_TRUE(IsSample(**GetSample(*store, 100), 100));
}

TEST_F(Damage, AnUnreadableSegmentIsNotAMissingOne) {
  Fill();
  // A link to itself in its place: the system refuses to open it, whoever asks.
  const std::string path = SegmentPath();
  fs::rename(path, path + ".kept");
  fs::create_symlink(path, path);
  {
    auto store = Open();
    EXPECT_EQ(store->stats().recovery, Recovery::kTransient);
    for (uint64_t n = 1; n <= kRecords; ++n) {
      const auto kv = GetSample(*store, n);
      ASSERT_FALSE(kv);
      EXPECT_EQ(kv.error().code, Code::kTransient) << kv.error().message;
    }
    EXPECT_EQ(store->stats().records, kRecords);
    EXPECT_EQ(store->stats().corrupt_records, 0U);
  }
  fs::remove(path);
  fs::rename(path + ".kept", path);
  auto store = Open();
  EXPECT_EQ(CountSound(*store), kRecords);
}

TEST_F(Damage, ADamagedCatalogIsAnEmptyOne) {
  for (int round = 0; round < 24; ++round) {
    Fill();
    const std::string path = options_.dir + "/catalog.db";
    const uint64_t size = fs::file_size(path);
    switch (round % 4) {
      case 0:
        fs::resize_file(path, random_() % size);
        break;
      case 1:
        std::ofstream(path, std::ios::binary) << "this is no database";
        break;
      case 2:
        std::fstream(path, std::ios::binary | std::ios::in | std::ios::out)
            << std::string(1 + random_() % 8192, '\x5A');
        break;
      default:
        for (int i = 0; i < 20; ++i) Flip(path, random_() % size);
    }
    auto opened = KvStore::Open(SystemEnv(), clock_, options_);
    if (!opened) {
      // A bit of the version, or of the mark that makes SQLite write nothing, may have changed.
      const Code code = opened.error().code;
      EXPECT_TRUE(code == Code::kUnsupported || code == Code::kTransient) << opened.error().message;
      continue;
    }
    KvStore& store = **opened;
    CountSound(store);
    if (HasFailure()) {
      ADD_FAILURE() << "round " << round << ", seed " << seed_;
      return;
    }
    const Status put = PutSamples(store, {1, 2, 3});
    EXPECT_TRUE(put || put.error().code == Code::kCorrupt) << put.error().message;
    EXPECT_TRUE(!put || IsSample(**GetSample(store, 1), 1));
    const auto compacted = store.Compact(true);
    EXPECT_TRUE(compacted) << compacted.error().message;
  }
}

}  // namespace
}  // namespace inferscale
