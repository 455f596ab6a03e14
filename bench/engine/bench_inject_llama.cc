// What a question costs before its first token: injected facts against the same tokens prefilled.
// The model is INFERSCALE_MODEL. The arguments are the number of injected tokens and, where it
// matters, whether the context has flash attention.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/llama_runtime.h"
#include "engine/llama/batch.h"
#include "engine/llama/contexts.h"
#include "engine/llama/model_file.h"
#include "engine/llama/model_info.h"
#include "engine/llama/sequence_kv.h"
#include "engine/llama/transpose.h"
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
  std::array<LlamaContexts, 2> contexts;  // without and with flash attention

  Setup() {
    InitLlamaRuntime();
    const char* path = std::getenv("INFERSCALE_MODEL");
    if (path == nullptr) OrExit<int>(Fail(Code::kInvalid, "INFERSCALE_MODEL is not set"));
    const ModelFile file = OrExit(ModelFile::Open(path));
    model.reset(llama_model_load_from_file(path, llama_model_default_params()));
    if (!model) OrExit<int>(Fail(Code::kInvalid, "{}", TakeLlamaError()));
    traits = OrExit(InspectModel(model.get(), OrExit(ReadFileTraits(file)), path));
    for (const bool flash : {false, true}) {
      contexts[flash] = OrExit(MakeContexts(model.get(),
                                            {.threads = threads,
                                             .sequences = 1,
                                             .slot_tokens = kContext,
                                             .encode_tokens = 512,
                                             .batch_tokens = 512,
                                             .flash_attention = flash},
                                            path));
    }
  }
};

Setup& Shared() {
  static Setup setup;
  return setup;
}

// What a benchmark injects into, and small random keys and values for it: no NaN, no denormals.
struct Injection {
  explicit Injection(const benchmark::State& state)
      : tokens(static_cast<uint32_t>(state.range(0))),
        contexts(setup.contexts[state.range(1) != 0]),
        context(contexts.generate.get()),
        bytes(tokens * setup.traits.kv.shape.TokenBytes()),
        record{setup.traits.kv.shape, tokens, bytes.data()},
        kv(setup.traits.kv, Dtype::kF16, contexts.generate_form, setup.threads) {
    std::mt19937 random(1);
    for (size_t i = 0; i < bytes.size(); i += 2) {
      const auto half = static_cast<uint16_t>(0x3000 + random() % 0x800);
      std::memcpy(bytes.data() + i, &half, 2);
    }
    constexpr uint32_t kFactTokens = 30;
    for (uint32_t first = 0; first < tokens; first += kFactTokens) {
      spans.push_back(
          {record, first, std::min(kFactTokens, tokens - first), static_cast<int32_t>(first)});
    }
  }
  ~Injection() { Forget(0); }
  Injection(const Injection&) = delete;
  Injection& operator=(const Injection&) = delete;

  void Inject() {
    if (!kv.Inject(context, 0, 0, spans)) std::abort();
  }
  void Forget(uint32_t from) {
    llama_memory_seq_rm(llama_get_memory(context), 0, static_cast<llama_pos>(from), -1);
  }
  // Computes tokens at positions [first, last), as a prompt in batches of at most 512.
  void Compute(uint32_t first, uint32_t last) {
    while (first < last) {
      const uint32_t end = std::min(last, first + 512);
      Batch batch;
      for (uint32_t i = first; i < end; ++i) {
        batch.Add(static_cast<Token>(100 + i % 1000), static_cast<llama_pos>(i), 0, i + 1 == last);
      }
      if (batch.Decode(context) != 0) std::abort();
      first = end;
    }
    benchmark::DoNotOptimize(llama_get_logits_ith(context, -1));
  }

  Setup& setup = Shared();
  uint32_t tokens;
  LlamaContexts& contexts;
  llama_context* context;
  std::vector<std::byte> bytes;
  FactKvView record;
  std::vector<SequenceSpan> spans;
  SequenceKv kv;
};

void RotateIntoBlob(benchmark::State& state) {
  const Injection injection(state);
  const Setup& setup = injection.setup;
  const ModelKv& kv = setup.traits.kv;
  const std::vector<RopeTable> tables(kv.ropes.specs.begin(), kv.ropes.specs.end());
  std::vector<InjectSpan> work;
  std::vector<StatePart> parts;
  for (size_t cache = 0; cache < kv.caches.size(); ++cache) {
    parts.push_back({kv.ShapeOf(cache, Dtype::kF16), std::vector<int32_t>(injection.tokens)});
    std::iota(parts.back().positions.begin(), parts.back().positions.end(), 0);
  }
  for (const SequenceSpan& span : injection.spans) {
    work.push_back({span.record,
                    {.record_token = span.record_token,
                     .tokens = span.tokens,
                     .position = span.position,
                     .first_slot = span.position,
                     .slots = {}}});
  }
  PageBuffer buffer;
  for (auto _ : state) {
    const MutableByteSpan blob = buffer.Get(StateBlobSize(parts, {}));
    const std::vector<StateRows> caches = WriteStateBlob(parts, {}, blob);
    for (size_t cache = 0; cache < caches.size(); ++cache) {
      const std::vector<std::byte*> k = kv.Place(cache, caches[cache].k);
      const std::vector<std::byte*> v = kv.Place(cache, caches[cache].v);
      if (!Inject(work, {tables, kv.ropes.layer_spec}, caches[cache].Layout(kv.shape, k, v),
                  setup.threads)) {
        state.SkipWithError("inject");
      }
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(injection.bytes.size()));
}

// The values of all layers, on one thread.
void TransposeValues(benchmark::State& state) {
  const KvShape& shape = Shared().traits.kv.shape;
  const auto tokens = static_cast<size_t>(state.range(0));
  const size_t layer_bytes = tokens * shape.VRowBytes();
  PageBuffer from;
  PageBuffer to;
  const MutableByteSpan rows = from.Get(layer_bytes * shape.layers);
  const MutableByteSpan columns = to.Get(layer_bytes * shape.layers);
  std::fill(rows.begin(), rows.end(), std::byte{1});
  for (auto _ : state) {
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      Transpose({rows.data() + layer * layer_bytes, shape.VRowBytes()},
                {columns.data() + layer * layer_bytes, tokens * 2}, tokens, shape.VRowBytes() / 2);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(rows.size()));
}

void SetState(benchmark::State& state) {
  Injection injection(state);
  injection.Inject();
  std::vector<uint8_t> blob(llama_state_seq_get_size(injection.context, 0));
  llama_state_seq_get_data(injection.context, blob.data(), blob.size(), 0);
  for (auto _ : state) {
    if (llama_state_seq_set_data(injection.context, blob.data(), blob.size(), 0) != blob.size()) {
      state.SkipWithError("set_data");
    }
  }
}

void InjectIntoContext(benchmark::State& state) {
  Injection injection(state);
  for (auto _ : state) injection.Inject();
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(injection.bytes.size()));
}

void Question(benchmark::State& state) {
  Injection injection(state);
  injection.Inject();
  for (auto _ : state) {
    injection.Compute(injection.tokens, injection.tokens + kQuestionTokens);
    injection.Forget(injection.tokens);
  }
}

void OneToken(benchmark::State& state) {
  Injection injection(state);
  injection.Inject();
  for (auto _ : state) {
    injection.Compute(injection.tokens, injection.tokens + 1);
    injection.Forget(injection.tokens);
  }
}

void InjectThenQuestion(benchmark::State& state) {
  Injection injection(state);
  for (auto _ : state) {
    injection.Inject();
    injection.Compute(injection.tokens, injection.tokens + kQuestionTokens);
  }
}

void PrefillAll(benchmark::State& state) {
  Injection injection(state);
  for (auto _ : state) {
    injection.Compute(0, injection.tokens + kQuestionTokens);
    injection.Forget(0);
  }
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens", "flash"})->ArgsProduct({{300, 1500}, {0, 1}});
  benchmark->Unit(benchmark::kMillisecond)->UseRealTime();
}
void SizesOnly(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens", "flash"})->ArgsProduct({{300, 1500}, {0}});
  benchmark->Unit(benchmark::kMillisecond)->UseRealTime();
}
BENCHMARK(RotateIntoBlob)->Apply(SizesOnly);
BENCHMARK(TransposeValues)->Apply(SizesOnly);
BENCHMARK(SetState)->Apply(Sizes);
BENCHMARK(InjectIntoContext)->Apply(Sizes);
BENCHMARK(Question)->Apply(Sizes);
BENCHMARK(OneToken)->Apply(Sizes);
BENCHMARK(InjectThenQuestion)->Apply(Sizes);
BENCHMARK(PrefillAll)->Apply(Sizes)->Iterations(1);

}  // namespace
}  // namespace inferscale

BENCHMARK_MAIN();
