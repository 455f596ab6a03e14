// What a question costs before its first token: injected facts against the same tokens prefilled.
// The model is INFERSCALE_MODEL; the argument of each benchmark is the number of injected tokens.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "base/llama_runtime.h"
#include "engine/llama/batch.h"
#include "engine/llama/contexts.h"
#include "engine/llama/model_file.h"
#include "engine/llama/model_info.h"
#include "engine/llama/sequence_kv.h"
#include "ops/inject/inject.h"

namespace inferscale {
namespace {

constexpr uint32_t kContext = 4096;
constexpr uint32_t kQuestionTokens = 24;

template <typename T>
T OrExit(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(1);
}

// INFERSCALE_BENCH_THREADS, or all of the machine's. On a machine with other work take 1: ggml's
// threads wait for each other by spinning.
int Threads() {
  const char* threads = std::getenv("INFERSCALE_BENCH_THREADS");
  return threads != nullptr ? std::max(1, std::atoi(threads))
                            : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

struct Setup {
  int threads = Threads();
  LlamaModelPtr model;
  LlamaModelTraits traits;
  LayerRopes ropes;
  LlamaContexts contexts;

  Setup() {
    InitLlamaRuntime();
    const char* path = std::getenv("INFERSCALE_MODEL");
    if (path == nullptr) OrExit<int>(Fail(Code::kInvalid, "INFERSCALE_MODEL is not set"));
    const ModelFile file = OrExit(ModelFile::Open(path));
    model.reset(llama_model_load_from_file(path, llama_model_default_params()));
    if (!model) OrExit<int>(Fail(Code::kInvalid, "{}", TakeLlamaError()));
    traits = OrExit(InspectModel(model.get(), OrExit(ReadRopeTensors(file)), path));
    ropes.specs = {traits.rope};
    ropes.layer_spec.assign(traits.shape.layers, 0);
    contexts = OrExit(MakeContexts(model.get(),
                                   {.threads = threads,
                                    .slots = 1,
                                    .slot_tokens = kContext,
                                    .encode_tokens = 512,
                                    .batch_tokens = 512},
                                   path));
  }
  void Forget() { llama_memory_seq_rm(llama_get_memory(contexts.generate.get()), 0, -1, -1); }
  // Computes tokens at positions [first, last), as a prompt in batches of at most 512.
  void Compute(uint32_t first, uint32_t last) {
    while (first < last) {
      const uint32_t end = std::min(last, first + 512);
      Batch batch;
      for (uint32_t i = first; i < end; ++i) {
        batch.Add(static_cast<Token>(100 + i % 1000), static_cast<llama_pos>(i), 0, i + 1 == last);
      }
      if (batch.Decode(contexts.generate.get()) != 0) std::abort();
      first = end;
    }
    benchmark::DoNotOptimize(llama_get_logits_ith(contexts.generate.get(), -1));
  }
};

Setup& Shared() {
  static Setup setup;
  return setup;
}

// Small random keys and values: no NaN, no denormals.
std::vector<std::byte> RandomRecord(const KvShape& shape, uint32_t tokens) {
  std::vector<std::byte> record(tokens * shape.TokenBytes());
  std::mt19937 random(1);
  for (size_t i = 0; i < record.size(); i += 2) {
    const auto half = static_cast<uint16_t>(0x3000 + random() % 0x800);
    std::memcpy(record.data() + i, &half, 2);
  }
  return record;
}

std::vector<SequenceSpan> FactsOf(const FactKvView& record) {
  std::vector<SequenceSpan> spans;
  constexpr uint32_t kFactTokens = 30;
  for (uint32_t first = 0; first < record.tokens; first += kFactTokens) {
    spans.push_back(
        {record, first, std::min(kFactTokens, record.tokens - first), static_cast<int32_t>(first)});
  }
  return spans;
}

void RotateIntoBlob(benchmark::State& state) {
  Setup& setup = Shared();
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const auto bytes = RandomRecord(setup.traits.shape, tokens);
  const FactKvView record{setup.traits.shape, tokens, bytes.data()};
  std::vector<int32_t> positions(tokens);
  for (uint32_t i = 0; i < tokens; ++i) positions[i] = static_cast<int32_t>(i);
  PageBuffer buffer;
  const RopeTable table(setup.traits.rope);
  std::vector<InjectSpan> work;
  for (const SequenceSpan& span : FactsOf(record)) {
    work.push_back({record,
                    {.record_token = span.record_token,
                     .tokens = span.tokens,
                     .position = span.position,
                     .first_slot = span.position,
                     .slots = {}}});
  }
  for (auto _ : state) {
    const MutableByteSpan blob = buffer.Get(StateBlobSize(setup.traits.shape, {}, tokens));
    const StateRows rows = WriteStateBlob(setup.traits.shape, {}, positions, blob);
    if (!Inject(work, {std::span(&table, 1), setup.ropes.layer_spec},
                rows.Layout(setup.traits.shape), setup.threads)) {
      state.SkipWithError("inject");
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size()));
}

void InjectIntoContext(benchmark::State& state) {
  Setup& setup = Shared();
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const auto bytes = RandomRecord(setup.traits.shape, tokens);
  const FactKvView record{setup.traits.shape, tokens, bytes.data()};
  const std::vector<SequenceSpan> spans = FactsOf(record);
  SequenceKv kv(setup.traits.shape, Dtype::kF16, setup.contexts.generate_form, setup.ropes,
                setup.threads);
  for (auto _ : state) {
    if (!kv.Inject(setup.contexts.generate.get(), 0, 0, spans)) state.SkipWithError("inject");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size()));
  setup.Forget();
}

void Question(benchmark::State& state) {
  Setup& setup = Shared();
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const auto bytes = RandomRecord(setup.traits.shape, tokens);
  const FactKvView record{setup.traits.shape, tokens, bytes.data()};
  SequenceKv kv(setup.traits.shape, Dtype::kF16, setup.contexts.generate_form, setup.ropes,
                setup.threads);
  if (!kv.Inject(setup.contexts.generate.get(), 0, 0, FactsOf(record))) std::abort();
  for (auto _ : state) {
    setup.Compute(tokens, tokens + kQuestionTokens);
    llama_memory_seq_rm(llama_get_memory(setup.contexts.generate.get()), 0,
                        static_cast<llama_pos>(tokens), -1);
  }
  setup.Forget();
}

void InjectThenQuestion(benchmark::State& state) {
  Setup& setup = Shared();
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const auto bytes = RandomRecord(setup.traits.shape, tokens);
  const FactKvView record{setup.traits.shape, tokens, bytes.data()};
  const std::vector<SequenceSpan> spans = FactsOf(record);
  SequenceKv kv(setup.traits.shape, Dtype::kF16, setup.contexts.generate_form, setup.ropes,
                setup.threads);
  for (auto _ : state) {
    if (!kv.Inject(setup.contexts.generate.get(), 0, 0, spans)) state.SkipWithError("inject");
    setup.Compute(tokens, tokens + kQuestionTokens);
    setup.Forget();
  }
}

void PrefillAll(benchmark::State& state) {
  Setup& setup = Shared();
  const auto tokens = static_cast<uint32_t>(state.range(0));
  for (auto _ : state) {
    setup.Compute(0, tokens + kQuestionTokens);
    setup.Forget();
  }
}

constexpr auto kUnit = benchmark::kMillisecond;
BENCHMARK(RotateIntoBlob)->Arg(300)->Arg(1500)->Unit(kUnit)->UseRealTime();
BENCHMARK(InjectIntoContext)->Arg(300)->Arg(1500)->Unit(kUnit)->UseRealTime();
BENCHMARK(Question)->Arg(300)->Arg(1500)->Unit(kUnit)->UseRealTime();
BENCHMARK(InjectThenQuestion)->Arg(300)->Arg(1500)->Unit(kUnit)->UseRealTime();
BENCHMARK(PrefillAll)->Arg(300)->Arg(1500)->Unit(kUnit)->UseRealTime()->Iterations(1);

}  // namespace
}  // namespace inferscale

BENCHMARK_MAIN();
