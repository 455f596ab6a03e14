#include "app/models.h"

#include <utility>

#include "embed/llama_embedder.h"
#include "embed/openai_embedder.h"
#include "engine/llama/llama_engine.h"
#include "engine/vllm/vllm_engine.h"

namespace inferscale {

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
    INFERSCALE_ASSIGN(models.engine, OpenVllmEngine({.urls = options.urls,
                                                     .api_key = options.engine_key,
                                                     .context_tokens = options.context_tokens}));
    return models;
  }
  INFERSCALE_ASSIGN(models.engine, OpenLlamaEngine({.model_path = options.model,
                                                    .threads = options.threads,
                                                    .slots = options.slots,
                                                    .context_tokens = options.context_tokens}));
  return models;
}

Result<std::unique_ptr<App>> App::Open(AppOptions options, Need need) {
  INFERSCALE_ASSIGN(Models models, LoadModels(options, need));
  return OpenApp(std::move(options), std::move(models));
}

}  // namespace inferscale
