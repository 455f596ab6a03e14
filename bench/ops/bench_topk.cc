// How fast one thread searches one scope: MiniLM's 384 dims in f16, and other sizes.
#include <benchmark/benchmark.h>

#include <random>

#include "ops/element.h"
#include "ops/topk/topk.h"

namespace inferscale {
namespace {

void BenchTopK(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  const auto dims = static_cast<uint32_t>(state.range(1));
  const auto k = static_cast<size_t>(state.range(2));
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<std::byte> data(count * dims * 2);
  for (size_t i = 0; i < count * dims; ++i) {
    WriteElement(data.data(), Dtype::kF16, i, normal(engine));
  }
  std::vector<float> query(dims);
  for (float& value : query) value = normal(engine);
  const VectorRows rows{data.data(), count, dims, Dtype::kF16};
  for (auto _ : state) benchmark::DoNotOptimize(TopK(rows, query, k));
  state.SetBytesProcessed(static_cast<int64_t>(data.size()) * state.iterations());
}

BENCHMARK(BenchTopK)
    ->ArgNames({"rows", "dims", "k"})
    ->Args({1000, 384, 32})
    ->Args({10000, 384, 1})
    ->Args({10000, 384, 32})
    ->Args({10000, 384, 300})
    ->Args({100000, 384, 32})
    ->Args({10000, 1024, 32})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace inferscale

BENCHMARK_MAIN();
