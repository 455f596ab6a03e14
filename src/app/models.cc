#include "app/models.h"

#include <algorithm>
#include <utility>

#include "embed/llama_embedder.h"
#include "embed/openai_embedder.h"
#include "engine/llama/llama_engine.h"
#include "engine/vllm/vllm_engine.h"

namespace inferscale {
namespace {

class SharedEngine final : public Engine {
 public:
  explicit SharedEngine(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  const ModelInfo& info() const override { return engine_->info(); }
  const PromptFormat& format() const override { return engine_->format(); }
  std::string Detokenize(std::span<const Token> tokens) const override {
    return engine_->Detokenize(tokens);
  }
  Result<std::unique_ptr<Generation>> Start(GenerateRequest request) override {
    return engine_->Start(std::move(request));
  }
  Result<EncodeResult> Encode(const EncodeRequest& request) override {
    return engine_->Encode(request);
  }
  Result<std::vector<std::vector<float>>> Score(const Prompt& prompt,
                                                std::span<const Token> continuation,
                                                uint64_t session) override {
    return engine_->Score(prompt, continuation, session);
  }
  void EndSession(uint64_t session) override { engine_->EndSession(session); }

 private:
  std::shared_ptr<Engine> engine_;
};

class SharedEmbedder final : public Embedder {
 public:
  explicit SharedEmbedder(std::shared_ptr<Embedder> embedder) : embedder_(std::move(embedder)) {}

  uint32_t dims() const override { return embedder_->dims(); }
  Hash128 identity() const override { return embedder_->identity(); }
  std::string name() const override { return embedder_->name(); }
  Result<std::vector<std::vector<float>>> Embed(std::span<const std::string> texts) override {
    return embedder_->Embed(texts);
  }

 private:
  std::shared_ptr<Embedder> embedder_;
};

}  // namespace

Models SharedModels::Share() const {
  return {std::make_unique<SharedEmbedder>(embedder_), std::make_unique<SharedEngine>(engine_)};
}

Result<Models> LoadModels(const AppOptions& options, Need need) {
  Models models;
  if (need == Need::kFacts) return models;
  if (!options.embed_url.empty()) {
    INFERSCALE_ASSIGN(models.embedder, OpenOpenAiEmbedder({.base_url = options.embed_url,
                                                           .model = options.embed_name,
                                                           .api_key = options.embed_key}));
  } else {
    INFERSCALE_ASSIGN(models.embedder, OpenLlamaEmbedder({.model_path = options.embed_model,
                                                          .threads = options.threads}));
  }
  if (need == Need::kSearch) return models;
  if (options.engine == EngineKind::kVllm) {
    if (options.heal) return Fail(Code::kInvalid, "vLLM can't heal dialogues; only llama.cpp can");
    INFERSCALE_ASSIGN(models.engine, OpenVllmEngine({.urls = options.urls,
                                                     .api_key = options.engine_key,
                                                     .context_tokens = options.context_tokens}));
    return models;
  }
  INFERSCALE_ASSIGN(models.engine,
                    OpenLlamaEngine({.model_path = options.model,
                                     .threads = options.threads,
                                     .slots = options.slots,
                                     .context_tokens = options.context_tokens,
                                     // All slots' requests may come at once.
                                     .queue_limit = std::max(64U, options.slots),
                                     .queue_wait = std::chrono::seconds(options.queue_seconds),
                                     .heal = options.heal}));
  return models;
}

Result<std::unique_ptr<App>> App::Open(AppOptions options, Need need) {
  INFERSCALE_ASSIGN(Models models, LoadModels(options, need));
  return OpenApp(std::move(options), std::move(models));
}

}  // namespace inferscale
