// How fast records come in and out. The records are those of a small model (30 layers, 3 heads of
// 64, f16: 23,040 bytes a token) with 150 tokens, 3.46 MB each; ten of them make the 35 MB that a
// question with 1,500 remembered tokens needs.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "store/kv_store.h"
#include "store/record_readers.h"

namespace inferscale {
namespace {

constexpr uint64_t kRecords = 10;
constexpr size_t kTokens = 150;
const KvShape kShape{30, 3, 64, 64, Dtype::kF16};
const Fingerprint kFingerprint{1, 2};

class Store {
 public:
  explicit Store(uint64_t arena_bytes) {
    std::string pattern = std::filesystem::temp_directory_path() / "inferscale_bench_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    options_.dir = pattern;
    options_.arena_bytes = arena_bytes;
    store_ = KvStore::Open(SystemEnv(), clock_, options_).value();
    std::mt19937_64 random(1);
    payload_.resize(kTokens * kShape.TokenBytes());
    for (std::byte& b : payload_) b = static_cast<std::byte>(random());
  }
  ~Store() {
    store_.reset();
    std::filesystem::remove_all(options_.dir);
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  void Put(uint64_t first, uint64_t count) {
    std::vector<KvPut> puts;
    for (uint64_t n = first; n < first + count; ++n) {
      puts.push_back(
          {{{n, 1}, "tenant", kFingerprint, kShape, std::vector<Token>(kTokens, 7)}, payload_});
    }
    if (!store_->Put(puts)) throw std::runtime_error("put");
  }
  void Erase(uint64_t first, uint64_t count) {
    std::vector<Hash128> keys;
    for (uint64_t n = first; n < first + count; ++n) keys.push_back({n, 1});
    if (!store_->Erase(keys)) throw std::runtime_error("erase");
  }
  void GetAll(Tier tier) {
    for (uint64_t n = 1; n <= kRecords; ++n) {
      const auto kv = store_->Get({n, 1}, kFingerprint, kShape);
      if (!kv || (*kv)->tier() != tier) throw std::runtime_error("get");
      benchmark::DoNotOptimize((*kv)->view().data);
    }
  }
  // kRecords from `first` on, `threads` reading.
  void ReadAll(uint64_t first, size_t threads) {
    std::vector<Hash128> keys;
    for (uint64_t n = first; n < first + kRecords; ++n) keys.push_back({n, 1});
    RecordReaders readers(store_, threads);
    readers.Read({"tenant", kFingerprint, kShape}, keys,
                 [](size_t, const RecordReaders::Record& record) {
                   if (!record) throw std::runtime_error("read");
                 });
  }
  // So that what is read next comes from the disk itself.
  void DropPages() {
    for (const auto& file : std::filesystem::directory_iterator(options_.dir)) {
      const int fd = ::open(file.path().c_str(), O_RDONLY);
      (void)::fdatasync(fd);
      (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      ::close(fd);
    }
  }
  KvStore& operator*() { return *store_; }
  int64_t record_bytes() const { return static_cast<int64_t>(payload_.size()); }

 private:
  SystemClock clock_;
  KvStoreOptions options_;
  std::vector<std::byte> payload_;
  std::shared_ptr<KvStore> store_;
};

// Records that are durable per second, `range` of them in one Put.
void BM_Put(benchmark::State& state) {
  Store store(uint64_t{256} << 20);
  const auto batch = static_cast<uint64_t>(state.range(0));
  uint64_t next = 1;
  for (auto _ : state) {
    store.Put(next, batch);
    state.PauseTiming();
    store.Erase(next, batch);
    next += batch;
    if (next % 100 < batch && !(*store).Compact(true)) throw std::runtime_error("compact");
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(batch));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(batch) * store.record_bytes());
}
BENCHMARK(BM_Put)->Arg(1)->Arg(10)->UseRealTime()->Unit(benchmark::kMillisecond)->Iterations(20);

void BM_GetFromArena(benchmark::State& state) {
  Store store(uint64_t{256} << 20);
  store.Put(1, kRecords);
  for (auto _ : state) store.GetAll(Tier::kHost);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kRecords));
}
BENCHMARK(BM_GetFromArena)->UseRealTime()->Unit(benchmark::kMicrosecond);

// What a request costs whose records are all in memory: 50 small ones are looked up and pinned, or
// their tokens compared. `range`: another process has written in between.
constexpr uint64_t kSmall = 50;
constexpr KvShape kSmallShape{1, 1, 16, 16, Dtype::kF16};

class SmallRecords {
 public:
  explicit SmallRecords(bool written) : written_(written), tokens_(32, 7) {
    std::string pattern = std::filesystem::temp_directory_path() / "inferscale_bench_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    options_.dir = pattern;
    store_ = KvStore::Open(SystemEnv(), clock_, options_).value();
    other_ = KvStore::Open(SystemEnv(), clock_, options_).value();
    payload_.resize(tokens_.size() * kSmallShape.TokenBytes());
    for (uint64_t n = 1; n <= kSmall; ++n) {
      keys_.push_back({n, 1});
      claims_.push_back({{n, 1}, 0, tokens_});
      Put(*store_, n);
    }
  }
  ~SmallRecords() {
    store_.reset();
    other_.reset();
    std::filesystem::remove_all(options_.dir);
  }
  SmallRecords(const SmallRecords&) = delete;
  SmallRecords& operator=(const SmallRecords&) = delete;

  void Write(benchmark::State& state) {
    if (!written_) return;
    state.PauseTiming();
    Put(*other_, ++next_);
    state.ResumeTiming();
  }
  void Pin() {
    for (const auto& pin : store_->GetResident(owner_, keys_)) {
      if (!pin || *pin == nullptr) throw std::runtime_error("pin");
    }
  }
  void Check() {
    for (const Status& status : store_->Check(owner_, claims_)) {
      if (!status) throw std::runtime_error("check");
    }
  }

 private:
  void Put(KvStore& store, uint64_t n) {
    const KvPut put = {{{n, 1}, owner_.tenant, owner_.fingerprint, owner_.shape, tokens_},
                       payload_};
    if (!store.Put({&put, 1})) throw std::runtime_error("put");
  }

  const bool written_;
  const KvOwner owner_{"tenant", kFingerprint, kSmallShape};
  SystemClock clock_;
  KvStoreOptions options_;
  std::vector<Token> tokens_;
  std::vector<std::byte> payload_;
  std::vector<Hash128> keys_;
  std::vector<KvClaim> claims_;
  std::unique_ptr<KvStore> store_, other_;
  uint64_t next_ = kSmall;
};

void BM_PinResident(benchmark::State& state) {
  SmallRecords records(state.range(0) != 0);
  for (auto _ : state) {
    records.Write(state);
    records.Pin();
  }
}
BENCHMARK(BM_PinResident)
    ->Arg(0)
    ->Arg(1)
    ->UseRealTime()
    ->Iterations(1000)
    ->Unit(benchmark::kMicrosecond);

void BM_CheckClaims(benchmark::State& state) {
  SmallRecords records(state.range(0) != 0);
  records.Check();
  for (auto _ : state) {
    records.Write(state);
    records.Check();
  }
}
BENCHMARK(BM_CheckClaims)
    ->Arg(0)
    ->Arg(1)
    ->UseRealTime()
    ->Iterations(1000)
    ->Unit(benchmark::kMicrosecond);

// The arena holds two records, so each Get reads from the disk (that is, the page cache), verifies
// both checksums and evicts another.
void BM_GetFromDisk(benchmark::State& state) {
  Store store(uint64_t{8} << 20);
  store.Put(1, kRecords);
  for (auto _ : state) store.GetAll(Tier::kDisk);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kRecords));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kRecords) *
                          store.record_bytes());
}
BENCHMARK(BM_GetFromDisk)->UseRealTime()->Unit(benchmark::kMillisecond);

// Ten records by so many threads (0: one after the other), from the page cache or from the disk.
// The arena holds eleven, and they take turns with ten others.
void BM_ReadAhead(benchmark::State& state) {
  Store store(uint64_t{40} << 20);
  store.Put(1, 2 * kRecords);
  uint64_t first = 1;
  for (auto _ : state) {
    if (state.range(1) != 0) {
      state.PauseTiming();
      store.DropPages();
      state.ResumeTiming();
    }
    store.ReadAll(first, static_cast<size_t>(state.range(0)));
    first = first == 1 ? 1 + kRecords : 1;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kRecords) *
                          store.record_bytes());
}
BENCHMARK(BM_ReadAhead)
    ->ArgNames({"threads", "cold"})
    ->ArgsProduct({{0, 1, 2, 4}, {0, 1}})
    ->UseRealTime()
    ->Iterations(20)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace inferscale

BENCHMARK_MAIN();
