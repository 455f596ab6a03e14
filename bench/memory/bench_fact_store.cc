// How fast facts become durable and come back.
//
//   bench_fact_store --benchmark_filter=Add
//
// INFERSCALE_BENCH_DIR says on which disk (the temporary folder otherwise): an add costs what an
// fsync costs there, which is measured beside it.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>

#include "memory/fact_store.h"

namespace inferscale {
namespace {

constexpr size_t kDims = 384;
const Hash128 kEmbedder{1, 2};

class Folder {
 public:
  Folder() {
    const char* chosen = ::getenv("INFERSCALE_BENCH_DIR");
    const auto parent =
        chosen != nullptr ? std::filesystem::path(chosen) : std::filesystem::temp_directory_path();
    std::string name = (parent / "inferscale-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the benchmark");
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string File(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct Source {
  std::mt19937 random{1};
  size_t made = 0;

  Fact Next() {
    Fact fact;
    fact.scope = {"default", "ana", "", fmt::format("session_{}", made / 20)};
    fact.speaker = made % 2 == 0 ? "Ana" : "Ben";
    fact.when_ms = 1'700'000'000'000 + static_cast<int64_t>(made) * 60'000;
    fact.text = fmt::format("Turn {} is about the {} and the {}, and about as long as turns are",
                            made, random() % 1000, random() % 1000);
    ++made;
    return fact;
  }
  std::vector<float> Vector() {
    std::vector<float> vector(kDims);
    for (float& value : vector) value = static_cast<float>(random() % 2000) / 20'000.0F - 0.05F;
    return vector;
  }
};

std::unique_ptr<FactStore> Open(const Folder& folder) {
  static const SystemClock kClock;
  return FactStore::Open(kClock, {.path = folder.File("memory.db")}).value();
}

void ReportLatencies(benchmark::State& state, std::vector<double> ms) {
  std::ranges::sort(ms);
  state.counters["p50_ms"] = ms[ms.size() / 2];
  state.counters["p99_ms"] = ms[ms.size() * 99 / 100];
}

// Append 4 KiB and fdatasync: the floor of a durable add.
void BenchFsync(benchmark::State& state) {
  Folder folder;
  const int fd = ::open(folder.File("log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const std::vector<char> page(4096, 'x');
  std::vector<double> ms;
  for (auto _ : state) {
    Stopwatch watch;
    const bool written = ::write(fd, page.data(), page.size()) == static_cast<ssize_t>(page.size());
    if (!written || ::fdatasync(fd) != 0) return state.SkipWithError("the disk refuses");
    ms.push_back(watch.Ms());
  }
  ::close(fd);
  ReportLatencies(state, ms);
}

void BenchAddOne(benchmark::State& state) {
  Folder folder;
  const auto store = Open(folder);
  Source source;
  std::vector<double> ms;
  for (auto _ : state) {
    state.PauseTiming();
    const Fact fact = source.Next();
    const std::vector<float> vector = source.Vector();
    state.ResumeTiming();
    Stopwatch watch;
    store->Add(std::span(&fact, 1), std::span(&vector, 1), kEmbedder).value();
    ms.push_back(watch.Ms());
  }
  ReportLatencies(state, ms);
}

void BenchAddBatch(benchmark::State& state) {
  const auto batch = static_cast<size_t>(state.range(0));
  const bool with_vectors = state.range(1) != 0;
  Folder folder;
  const auto store = Open(folder);
  Source source;
  std::vector<Fact> facts(batch);
  std::vector<std::vector<float>> vectors(with_vectors ? batch : 0);
  for (auto _ : state) {
    state.PauseTiming();
    for (Fact& fact : facts) fact = source.Next();
    for (auto& vector : vectors) vector = source.Vector();
    state.ResumeTiming();
    store->Add(facts, vectors, kEmbedder).value();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(batch));
}

// What the search index reads when a user comes back.
void BenchForEach(benchmark::State& state) {
  Folder folder;
  const auto store = Open(folder);
  Source source;
  std::vector<Fact> facts(static_cast<size_t>(state.range(0)));
  std::vector<std::vector<float>> vectors;
  for (Fact& fact : facts) {
    fact = source.Next();
    vectors.push_back(source.Vector());
  }
  store->Add(facts, vectors, kEmbedder).value();
  for (auto _ : state) {
    float sum = 0;
    const auto visit = [&](Fact&&, std::span<const float> vector) { sum += vector[0]; };
    if (!store->ForEach("default", "ana", kEmbedder, visit)) return state.SkipWithError("no facts");
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK(BenchFsync)->UseRealTime()->Iterations(500)->Unit(benchmark::kMillisecond);
BENCHMARK(BenchAddOne)->UseRealTime()->Iterations(500)->Unit(benchmark::kMillisecond);
BENCHMARK(BenchAddBatch)
    ->ArgNames({"facts", "vectors"})
    ->ArgsProduct({{64, 1024}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BenchForEach)->Arg(1000)->Arg(10'000)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace inferscale

BENCHMARK_MAIN();
