#include "engine/llama/contexts.h"

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
  // Values lie as rows then, one after another; see state_blob.h.
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

}  // namespace

Result<LlamaContexts> MakeContexts(llama_model* model, const ContextSizes& sizes,
                                   const std::string& label) {
  LlamaContexts contexts;
  ggml_threadpool_params pool = ggml_threadpool_params_default(sizes.threads);
  pool.poll = kPoll;
  contexts.threads.reset(ggml_threadpool_new(&pool));

  llama_context_params params = CommonParams(sizes);
  params.n_ctx = sizes.slots * sizes.slot_tokens;
  params.n_batch = sizes.batch_tokens;
  params.n_ubatch = sizes.batch_tokens;
  params.n_seq_max = sizes.slots;
  params.n_outputs_max = sizes.slots + kScoreOutputs;
  params.kv_unified = false;
  params.type_k = GGML_TYPE_F16;
  params.type_v = GGML_TYPE_F16;
  TakeLlamaError();
  contexts.generate = MakeContext(model, params, contexts.threads.get());
  if (!contexts.generate) {
    return Fail(Code::kExhausted, "{}: no context of {} x {} tokens: {}", label, sizes.slots,
                sizes.slot_tokens, TakeLlamaError());
  }

  params = CommonParams(sizes);
  params.n_ctx = sizes.encode_tokens;
  params.n_batch = sizes.batch_tokens;
  params.n_ubatch = sizes.batch_tokens;
  params.n_seq_max = kEncodeSequences;
  params.n_outputs_max = kEncodeSequences;  // the least that llama.cpp takes
  params.kv_unified = true;
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
