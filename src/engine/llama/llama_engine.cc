#include "engine/llama/llama_engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "base/llama_runtime.h"
#include "engine/llama/contexts.h"
#include "engine/llama/encoder.h"
#include "engine/llama/model_file.h"
#include "engine/llama/scheduler.h"
#include "engine/llama/self_test.h"
#include "engine/llama/vocabulary.h"
#include "engine/schema_grammar.h"
#include "engine/template_format.h"

namespace inferscale {
namespace {

constexpr uint32_t kDefaultContext = 8192;
constexpr uint32_t kDefaultEncode = 4096;
// llama.cpp rounds contexts up to this.
constexpr uint32_t kContextStep = 256;

ContextSizes SizesFor(const LlamaEngineOptions& options, const LlamaModelTraits& traits) {
  ContextSizes sizes;
  sizes.threads = options.threads > 0
                      ? options.threads
                      : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  sizes.sequences = options.slots + (options.heal ? 1 : 0);
  const auto choose = [&](uint32_t wanted, uint32_t standard) {
    const uint32_t most = std::max(traits.max_context, kContextStep);
    const uint32_t tokens = wanted > 0 ? std::min(wanted, most) : std::min(standard, most);
    return (tokens + kContextStep - 1) / kContextStep * kContextStep;
  };
  sizes.slot_tokens = choose(options.context_tokens, kDefaultContext);
  sizes.encode_tokens = std::min(choose(options.encode_tokens, kDefaultEncode), sizes.slot_tokens);
  sizes.batch_tokens = std::min(sizes.batch_tokens, sizes.encode_tokens);
  sizes.flash_attention =
      options.flash_attention == FlashAttention::kOn ||
      (options.flash_attention == FlashAttention::kAuto && llama_supports_gpu_offload());
  return sizes;
}

class LlamaEngine final : public Engine {
 public:
  static Result<std::unique_ptr<Engine>> Make(LoadedLlamaModel loaded,
                                              const LlamaEngineOptions& options);

  const ModelInfo& info() const override { return info_; }
  const PromptFormat& format() const override { return *format_; }
  std::string Detokenize(std::span<const Token> tokens) const override;

  Result<std::unique_ptr<Generation>> Start(GenerateRequest request) override;
  Result<EncodeResult> Encode(const EncodeRequest& request) override;
  Result<Logits> Score(const Prompt& prompt, std::span<const Token> continuation,
                       uint64_t session) override;
  void EndSession(uint64_t session) override { scheduler_->EndSession(session); }

 private:
  explicit LlamaEngine(LlamaModelPtr model) : model_(std::move(model)), vocabulary_(model_.get()) {}

  Result<LayerRopes> TestModel(const LlamaModelTraits& traits, bool injection);
  void StartThread(const ModelKv& kv, const ContextSizes& sizes, const LlamaEngineOptions& options);
  Status CheckPrompt(Prompt& prompt) const;
  Status CheckTokens(std::span<const Token> tokens) const;
  bool TakesRecord(const FactKvView& record) const;

  LlamaModelPtr model_;
  Vocabulary vocabulary_;
  std::unique_ptr<PromptFormat> format_;
  ModelInfo info_;
  LlamaContexts contexts_;
  std::optional<SequenceKv> kv_;
  std::atomic<bool> request_came_{false};
  std::optional<Encoder> encoder_;
  std::optional<Scheduler> scheduler_;  // last: its thread uses all of the above
};

Result<std::unique_ptr<Engine>> LlamaEngine::Make(LoadedLlamaModel loaded,
                                                  const LlamaEngineOptions& options) {
  const size_t most_slots = llama_max_parallel_sequences() - (options.heal ? 1 : 0);
  if (options.slots == 0 || options.slots > most_slots) {
    return Fail(Code::kInvalid, "slots must be from 1 to {}, not {}", most_slots, options.slots);
  }
  INFERSCALE_ASSIGN(const LlamaModelTraits traits,
                    InspectModel(loaded.model.get(), loaded.file, loaded.label));
  std::unique_ptr<LlamaEngine> engine(new LlamaEngine(std::move(loaded.model)));
  const char* chat_template = llama_model_chat_template(engine->model_.get(), nullptr);
  INFERSCALE_ASSIGN(engine->format_,
                    MakePromptFormat(engine->vocabulary_,
                                     chat_template == nullptr ? "" : chat_template, loaded.label));
  const ContextSizes sizes = SizesFor(options, traits);
  INFERSCALE_ASSIGN(engine->contexts_, MakeContexts(engine->model_.get(), sizes, loaded.label));

  ModelInfo& info = engine->info_;
  info.name = traits.name;
  info.architecture = traits.architecture;
  info.description = traits.description;
  info.engine_version = fmt::format("llama.cpp {}", llama_version());
  info.shape = traits.kv.shape;
  info.context_tokens = sizes.slot_tokens;
  info.encode_tokens = sizes.encode_tokens;
  info.vocabulary = engine->vocabulary_.size();
  ModelKv kv = traits.kv;
  INFERSCALE_ASSIGN(kv.ropes, engine->TestModel(traits, options.injection));
  info.fingerprint = MakeFingerprint({.weights = loaded.weights,
                                      .adapter = "",
                                      .engine = "llama",
                                      .chat_template = engine->format_->Hash(),
                                      .shape = kv.shape,
                                      .ropes = kv.ropes});
  engine->StartThread(kv, sizes, options);
  return engine;
}

Result<LayerRopes> LlamaEngine::TestModel(const LlamaModelTraits& traits, bool injection) {
  INFERSCALE_ASSIGN(LlamaSelfTest test, RunSelfTest(contexts_.encode.get(), traits));
  info_.self_test = std::move(test.result);
  if (info_.self_test.passed) {
    const Status layout =
        ProbeStateLayout(contexts_.generate.get(), traits.kv, Dtype::kF16, contexts_.generate_form);
    if (!layout) {
      info_.self_test.passed = false;
      info_.self_test.summary = layout.error().message;
    }
  }
  info_.injection = info_.self_test.passed && injection;
  if (!info_.self_test.passed) {
    spdlog::warn("facts are prefilled, not injected: {}", info_.self_test.summary);
  }
  return std::move(test.ropes);
}

void LlamaEngine::StartThread(const ModelKv& kv, const ContextSizes& sizes,
                              const LlamaEngineOptions& options) {
  kv_.emplace(kv, Dtype::kF16, contexts_.generate_form, sizes.threads);
  encoder_.emplace(contexts_.encode.get(), kv, sizes.encode_tokens, info_.vocabulary, sizes.threads,
                   &request_came_);
  std::vector<Slot> slots;
  for (uint32_t i = 0; i < options.slots; ++i) {
    slots.emplace_back(contexts_.generate.get(), static_cast<llama_seq_id>(i), &*kv_, &vocabulary_,
                       sizes.slot_tokens);
  }
  std::optional<Healer> healer;
  if (options.heal && info_.injection) {
    healer.emplace(contexts_.generate.get(), static_cast<llama_seq_id>(options.slots), &*kv_,
                   sizes.batch_tokens, &request_came_);
  }
  scheduler_.emplace(contexts_.generate.get(), std::move(slots), &*encoder_, std::move(healer),
                     &request_came_, sizes.batch_tokens,
                     QueueLimits{.requests = options.queue_limit, .wait = options.queue_wait});
}

std::string LlamaEngine::Detokenize(std::span<const Token> tokens) const {
  std::string text;
  for (const Token token : tokens) text += vocabulary_.Piece(token);
  return text;
}

Status LlamaEngine::CheckTokens(std::span<const Token> tokens) const {
  for (const Token token : tokens) {
    if (!vocabulary_.Contains(token)) {
      return Fail(Code::kInvalid, "token {} is not in the vocabulary of {}", token,
                  vocabulary_.size());
    }
  }
  return {};
}

// Also drops the spans if the model can't take them.
// One of the model's, or the same quantised and with its scales.
bool LlamaEngine::TakesRecord(const FactKvView& record) const {
  KvShape shape = record.shape;
  if (IsQuantised(shape.dtype) && record.key_scales != nullptr) shape.dtype = info_.shape.dtype;
  return record.data != nullptr && shape == info_.shape;
}

Status LlamaEngine::CheckPrompt(Prompt& prompt) const {
  if (prompt.tokens.empty()) return Fail(Code::kInvalid, "the prompt is empty");
  if (prompt.tokens.size() > info_.context_tokens) {
    return Fail(Code::kInvalid, "the prompt has {} tokens, the context {}", prompt.tokens.size(),
                info_.context_tokens);
  }
  INFERSCALE_TRY(CheckTokens(prompt.tokens));
  if (!info_.injection) prompt.spans.clear();
  uint64_t end = 0;
  for (const PromptSpan& span : prompt.spans) {
    const uint64_t record_end = uint64_t{span.record_token} + span.tokens;
    if (span.tokens == 0 || span.first < end || record_end > span.record.tokens ||
        !TakesRecord(span.record)) {
      return Fail(Code::kInvalid, "a span of {} tokens at {} overlaps or does not fit its record",
                  span.tokens, span.first);
    }
    end = uint64_t{span.first} + span.tokens;
  }
  if (end >= prompt.tokens.size() && !prompt.spans.empty()) {
    return Fail(Code::kInvalid, "the spans leave no token of the prompt to be computed");
  }
  return {};
}

Result<std::unique_ptr<Generation>> LlamaEngine::Start(GenerateRequest request) {
  INFERSCALE_TRY(CheckSampling(request.sampling));
  INFERSCALE_TRY(CheckPrompt(request.prompt));
  if (const std::string& schema = request.sampling.json_schema; !schema.empty()) {
    INFERSCALE_ASSIGN(request.sampling.grammar, SchemaGrammar(schema));
  }
  std::optional<Grammar> grammar;
  if (const std::string& text = request.sampling.grammar; !text.empty()) {
    INFERSCALE_ASSIGN(grammar, Grammar::Parse(llama_model_get_vocab(model_.get()), text));
  }
  const std::stop_token stop = request.stop;
  auto task = std::make_unique<Task>(std::move(request));
  task->grammar = std::move(grammar);
  auto generation = std::make_unique<ChannelGeneration>(task->channel, stop);
  INFERSCALE_TRY(scheduler_->Submit(std::move(task)));
  return generation;
}

Result<EncodeResult> LlamaEngine::Encode(const EncodeRequest& request) {
  if (!info_.injection) {
    return Fail(Code::kUnsupported, "this model's KV can't be injected: {}",
                info_.self_test.summary);
  }
  return scheduler_->Encode(request);
}

Result<Logits> LlamaEngine::Score(const Prompt& prompt, std::span<const Token> continuation,
                                  uint64_t session) {
  if (continuation.empty()) return Fail(Code::kInvalid, "there is nothing to score");
  GenerateRequest request{.prompt = prompt, .sampling = {}, .session = session};
  INFERSCALE_TRY(CheckPrompt(request.prompt));
  INFERSCALE_TRY(CheckTokens(continuation));
  std::vector<Token>& tokens = request.prompt.tokens;
  const auto first_output = static_cast<uint32_t>(tokens.size() - 1);
  tokens.insert(tokens.end(), continuation.begin(), continuation.end() - 1);
  if (tokens.size() > info_.context_tokens) {
    return Fail(Code::kInvalid, "prompt and continuation have {} tokens, the context {}",
                tokens.size(), info_.context_tokens);
  }
  auto task = std::make_unique<Task>(std::move(request));
  task->first_output = first_output;
  auto result = task->score.emplace().get_future();
  INFERSCALE_TRY(scheduler_->Submit(std::move(task)));
  return result.get();
}

}  // namespace

Result<std::unique_ptr<Engine>> MakeLlamaEngine(LoadedLlamaModel loaded,
                                                const LlamaEngineOptions& options) {
  return LlamaEngine::Make(std::move(loaded), options);
}

Result<std::unique_ptr<Engine>> OpenLlamaEngine(const LlamaEngineOptions& options) {
  InitLlamaRuntime();
  const std::string& path = options.model_path;
  INFERSCALE_ASSIGN(const ModelFile file, ModelFile::Open(path));
  INFERSCALE_TRY(CheckModelFile(file));
  LoadedLlamaModel loaded;
  loaded.label = path;
  INFERSCALE_ASSIGN(loaded.weights, file.Hash());
  INFERSCALE_ASSIGN(loaded.file, ReadFileTraits(file));
  TakeLlamaError();
  loaded.model.reset(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
  if (!loaded.model) {
    return Fail(Code::kUnsupported, "{}: libllama can't load it (architecture {}): {}", path,
                file.architecture(), TakeLlamaError());
  }
  return MakeLlamaEngine(std::move(loaded), options);
}

}  // namespace inferscale
