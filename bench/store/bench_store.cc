// How fast records come in and out. The records are those of a small model (30 layers, 3 heads of
// 64, f16: 23,040 bytes a token) with 150 tokens, 3.46 MB each; ten of them make the 35 MB that a
// question with 1,500 remembered tokens needs.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "store/kv_store.h"

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
  KvStore& operator*() { return *store_; }
  int64_t record_bytes() const { return static_cast<int64_t>(payload_.size()); }

 private:
  SystemClock clock_;
  KvStoreOptions options_;
  std::vector<std::byte> payload_;
  std::unique_ptr<KvStore> store_;
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

}  // namespace
}  // namespace inferscale

BENCHMARK_MAIN();
