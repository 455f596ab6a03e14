// Bytes that are not what they were: missing or damaged records are told, never served.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "sample.h"
#include "store/catalog.h"

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
  EXPECT_GT(noticed, 10U);  // the rest fell on padding
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
    const uint64_t size = random_() % (whole - 4096);  // padding alone is no loss
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

// Bytes that this process has read from files so far.
uint64_t BytesRead() {
  std::ifstream io("/proc/self/io");
  std::string name;
  uint64_t bytes = 0;
  io >> name >> bytes;
  EXPECT_EQ(name, "rchar:");
  return bytes;
}

class LargeCatalog : public Damage {
 protected:
  // Rows without records: a catalog does not look.
  void FillCatalog() {
    fs::create_directories(options_.dir);
    auto catalog = Catalog::Open(path_);
    ASSERT_TRUE(catalog) << catalog.error().message;
    std::vector<CatalogRow> rows;
    for (uint64_t n = 0; n < 20'000; ++n) {
      // Keys in no order, so that damage anywhere is near to some.
      rows.push_back({HashBytes(AsBytes(std::to_string(n))),
                      "tenant",
                      kSampleFingerprint,
                      {std::to_string(n / 100) + ".seg", n % 100 * 4096, 4096, 7},
                      512,
                      1});
    }
    ASSERT_TRUE((*catalog)->Insert(rows));
  }
  // All but the first pages, where the tables are described.
  void Destroy() {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(16 * 4096);
    file << std::string(fs::file_size(path_) - 16 * 4096, '\x5A');
  }

  const std::string path_ = options_.dir + "/catalog.db";
};

TEST_F(LargeCatalog, OpeningReadsLittle) {
  FillCatalog();
  const uint64_t before = BytesRead();
  auto catalog = Catalog::Open(path_);
  ASSERT_TRUE(catalog) << catalog.error().message;
  EXPECT_LT(BytesRead() - before, fs::file_size(path_) / 20);
  EXPECT_EQ((*catalog)->Segments()->size(), 200U);
  EXPECT_EQ((*catalog)->Segments()->front().end, 100U * 4096);
}

TEST_F(LargeCatalog, DamageInsideIsFoundWhereItIsMet) {
  FillCatalog();
  Destroy();
  auto catalog = Catalog::Open(path_);
  ASSERT_TRUE(catalog) << catalog.error().message;
  EXPECT_FALSE((*catalog)->was_damaged());
  for (uint64_t n = 0; n < 100 && !(*catalog)->was_damaged(); ++n) {
    const auto found = (*catalog)->Find(HashBytes(AsBytes(std::to_string(n))));
    ASSERT_TRUE(found) << found.error().message;
  }
  EXPECT_TRUE((*catalog)->was_damaged());
  EXPECT_TRUE((*catalog)->Keys()->empty());
  EXPECT_TRUE(*(*catalog)->Verify());
}

TEST_F(LargeCatalog, AWriteMendsWhatItMeets) {
  FillCatalog();
  Destroy();
  auto catalog = Catalog::Open(path_);
  ASSERT_TRUE(catalog) << catalog.error().message;
  std::vector<Hash128> keys;
  for (uint64_t n = 0; n < 100; ++n) keys.push_back(HashBytes(AsBytes(std::to_string(n))));
  EXPECT_TRUE((*catalog)->Erase(keys));
  EXPECT_TRUE((*catalog)->was_damaged());
}

TEST_F(LargeCatalog, VerifyLooksAtEverything) {
  FillCatalog();
  auto catalog = Catalog::Open(path_);
  ASSERT_TRUE(catalog) << catalog.error().message;
  EXPECT_TRUE(*(*catalog)->Verify());
  EXPECT_EQ((*catalog)->Keys()->size(), 20'000U);
  catalog->reset();
  Destroy();
  catalog = Catalog::Open(path_);
  EXPECT_FALSE(*(*catalog)->Verify());
  EXPECT_TRUE((*catalog)->was_damaged());
  catalog->reset();
  FillCatalog();
  Destroy();
  auto store = Open();  // looks at the last record of every segment
  EXPECT_EQ(store->stats().recovery, Recovery::kCorrupt);
  EXPECT_EQ(store->stats().records, 0U);
  EXPECT_TRUE(*store->Verify());
  EXPECT_TRUE(PutSamples(*store, {1}));
}

}  // namespace
}  // namespace inferscale
