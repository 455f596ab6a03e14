#include "engine/llama/contexts.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/llama_runtime.h"
#include "engine/llama/encoder.h"
#include "engine/llama/scheduler.h"

namespace inferscale {
namespace {

// Between two graphs a worker spins this little before it sleeps: enough for the gap between two
// tokens, not enough to take a core from the injection or the server.
constexpr uint32_t kPoll = 1;

llama_context_params CommonParams(const ContextSizes& sizes) {
  llama_context_params params = llama_context_default_params();
  params.n_threads = sizes.threads;
  params.n_threads_batch = sizes.threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.no_perf = true;
  return params;
}

LlamaContextPtr MakeContext(llama_model* model, const llama_context_params& params,
                            ggml_threadpool* threads) {
  LlamaContextPtr context(llama_init_from_model(model, params));
  if (context) llama_attach_threadpool(context.get(), threads, threads);
  return context;
}

// Without flash attention a step keeps the scores of all its tokens with the whole context. Large
// models take fewer tokens a step, so that this stays small beside their weights.
uint32_t StepTokens(const llama_model* model, const ContextSizes& sizes) {
  constexpr uint64_t kMostBytes = uint64_t{256} << 20;
  constexpr uint32_t kFewerTokens = 256;
  if (sizes.flash_attention) return sizes.batch_tokens;
  const uint64_t token_bytes = sizeof(float) * uint64_t{sizes.slot_tokens} *
                               static_cast<uint32_t>(llama_model_n_head(model));
  const uint32_t tokens = sizes.batch_tokens * token_bytes > kMostBytes
                              ? std::min(sizes.batch_tokens, kFewerTokens)
                              : sizes.batch_tokens;
  spdlog::debug("attention scores: {} MiB for {} tokens a step", (tokens * token_bytes) >> 20,
                tokens);
  return tokens;
}

}  // namespace

Result<LlamaContexts> MakeContexts(llama_model* model, const ContextSizes& sizes,
                                   const std::string& label) {
  LlamaContexts contexts;
  ggml_threadpool_params pool = ggml_threadpool_params_default(sizes.threads);
  pool.poll = kPoll;
  contexts.threads.reset(ggml_threadpool_new(&pool));

  llama_context_params params = CommonParams(sizes);
  params.n_ctx = sizes.sequences * sizes.slot_tokens;
  params.n_batch = sizes.batch_tokens;
  params.n_ubatch = StepTokens(model, sizes);
  params.n_seq_max = sizes.sequences;
  params.n_outputs_max = sizes.sequences + kScoreOutputs;
  params.kv_unified = false;
  params.swa_full = false;  // layers with a window keep what they see: SequenceKv needs no more
  if (!sizes.flash_attention) params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = GGML_TYPE_F16;
  params.type_v = GGML_TYPE_F16;
  TakeLlamaError();
  contexts.generate = MakeContext(model, params, contexts.threads.get());
  if (!contexts.generate) {
    return Fail(Code::kExhausted, "{}: no context of {} x {} tokens: {}", label, sizes.sequences,
                sizes.slot_tokens, TakeLlamaError());
  }
  contexts.generate_form = {.streams = sizes.sequences,
                            .transposed_values = !sizes.flash_attention};

  params = CommonParams(sizes);
  params.n_ctx = sizes.encode_tokens;
  params.n_batch = sizes.batch_tokens;
  params.n_ubatch = sizes.batch_tokens;
  params.n_seq_max = kEncodeSequences;
  params.n_outputs_max = kEncodeSequences;  // the least that llama.cpp takes
  params.kv_unified = true;
  params.swa_full = true;  // sequences that share a long prefix would fill the smaller cache
  params.type_k = GGML_TYPE_F32;
  params.type_v = GGML_TYPE_F32;
  contexts.encode = MakeContext(model, params, contexts.threads.get());
  if (!contexts.encode) {
    return Fail(Code::kExhausted, "{}: no encoding context of {} tokens: {}", label,
                sizes.encode_tokens, TakeLlamaError());
  }
  return contexts;
}

}  // namespace inferscale
