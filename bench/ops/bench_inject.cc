// How fast facts' KV goes into a llama.cpp state blob, next to memcpy of the same bytes.
//
//   bench_inject --benchmark_filter=Smol
//
// "from i8" and "from f8e4m3" inject the same facts from quantised records into the same f16 blob.
//
// GB/s counts bytes read plus bytes written; of_copy is the share of memcpy's speed. Both are run
// in turn by the same number of threads, and the best round of each counts, so that other load on
// the machine does not.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "ops/inject/inject.h"

namespace inferscale {
namespace {

constexpr uint32_t kTokens = 1500;
constexpr uint32_t kFactTokens = 30;

struct Model {
  const char* name;
  KvShape shape;
  RopeKind kind;
};

const Model kModels[] = {
    {"SmolLM2-135M", {30, 3, 64, 64, Dtype::kF16}, RopeKind::kInterleaved},
    {"Llama-3.2-1B", {16, 8, 64, 64, Dtype::kF16}, RopeKind::kInterleaved},
    {"Llama-3.1-8B", {32, 8, 128, 128, Dtype::kF16}, RopeKind::kInterleaved},
    {"Qwen3-8B", {36, 8, 128, 128, Dtype::kF16}, RopeKind::kNeox},
};

// 50 facts and the blob that they go to: per layer all K rows, then all V rows.
struct Workload {
  Workload(const Model& model, Dtype stored)
      : facts(kTokens / kFactTokens),
        key_scales(model.shape.KeyScales(), 0.01F),
        blob(kTokens * model.shape.TokenBytes()),
        tables{RopeTable({.kind = model.kind,
                          .head_dim = model.shape.k_dim,
                          .rotary_dims = model.shape.k_dim,
                          .freq_base = 5e5F})},
        layer_table(model.shape.layers, 0) {
    KvShape record = model.shape;
    record.dtype = stored;
    for (size_t f = 0; f < facts.size(); ++f) {
      // 0x3C3C is 1.06 in f16, 0x3C3C3C3C 0.01 in f32: ordinary numbers.
      facts[f].assign(kFactTokens * record.TokenBytes(), std::byte{0x3C});
      CacheSpan span;
      span.tokens = kFactTokens;
      span.first_slot = static_cast<int64_t>(f) * kFactTokens;
      span.position = static_cast<int32_t>(span.first_slot) + 40;
      spans.push_back({{record, kFactTokens, facts[f].data(), key_scales.data()}, span});
    }
    const MutableFactKvView rows{model.shape, kTokens, blob.data()};
    for (uint32_t l = 0; l < model.shape.layers; ++l) {
      k_base.push_back(rows.K(l));
      v_base.push_back(rows.V(l));
    }
    const auto row = static_cast<int64_t>(model.shape.KRowBytes());
    const int64_t head = row / model.shape.kv_heads;
    layout = {k_base, v_base, {0, row, head}, {0, row, head}, 0, model.shape.dtype};
  }

  void InjectAll(int threads) {
    if (!Inject(spans, {tables, layer_table}, layout, threads)) std::abort();
  }

  void CopyAll(int threads) {
    std::vector<std::jthread> helpers;
    const size_t share = (facts.size() + static_cast<size_t>(threads) - 1) / threads;
    const auto copy = [&](size_t first) {
      for (size_t f = first; f < std::min(first + share, facts.size()); ++f) {
        std::memcpy(blob.data() + f * facts[f].size(), facts[f].data(), facts[f].size());
      }
    };
    for (size_t t = 1; t < static_cast<size_t>(threads); ++t) helpers.emplace_back(copy, t * share);
    copy(0);
  }

  std::vector<std::vector<std::byte>> facts;
  std::vector<float> key_scales;
  std::vector<std::byte> blob;
  std::vector<RopeTable> tables;
  std::vector<uint8_t> layer_table;
  std::vector<InjectSpan> spans;
  std::vector<std::byte*> k_base, v_base;
  CacheLayout layout;
};

void BenchInject(benchmark::State& state, const Model& model, Dtype stored) {
  const auto threads = static_cast<int>(state.range(0));
  Workload work(model, stored);
  work.CopyAll(threads);
  double inject_ms = HUGE_VAL, copy_ms = HUGE_VAL;
  for (auto _ : state) {
    Stopwatch watch;
    work.CopyAll(threads);
    copy_ms = std::min(copy_ms, watch.LapMs());
    work.InjectAll(threads);
    const double ms = watch.Ms();
    inject_ms = std::min(inject_ms, ms);
    state.SetIterationTime(ms / 1e3);
  }
  const double read = static_cast<double>(work.facts.size() * work.facts.front().size()) * 1e-6;
  state.counters["best_ms"] = inject_ms;
  state.counters["inject_GB/s"] = (read + static_cast<double>(work.blob.size()) * 1e-6) / inject_ms;
  state.counters["copy_GB/s"] = 2 * read / copy_ms;
  state.counters["of_copy"] = copy_ms / inject_ms;
}

}  // namespace
}  // namespace inferscale

int main(int argc, char** argv) {
  using inferscale::Dtype;
  for (const auto& model : inferscale::kModels) {
    for (const Dtype stored : {Dtype::kF16, Dtype::kI8, Dtype::kF8E4M3}) {
      std::string name = model.name;
      if (stored != Dtype::kF16) name.append(" from ").append(inferscale::DtypeName(stored));
      benchmark::RegisterBenchmark(name.c_str(), inferscale::BenchInject, model, stored)
          ->ArgName("threads")
          ->Arg(1)
          ->Arg(2)
          ->UseManualTime()
          ->MinTime(0.5)
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
