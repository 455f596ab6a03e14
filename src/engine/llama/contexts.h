// The two llama contexts of an engine, made over one model.
#ifndef INFERSCALE_ENGINE_LLAMA_CONTEXTS_H_
#define INFERSCALE_ENGINE_LLAMA_CONTEXTS_H_

#include <string>

#include "base/result.h"
#include "engine/llama/handles.h"
#include "engine/llama/state_blob.h"

namespace inferscale {

struct ContextSizes {
  int threads = 1;
  uint32_t sequences = 1;  // of the generating context, each of slot_tokens
  uint32_t slot_tokens = 0;
  uint32_t encode_tokens = 0;
  uint32_t batch_tokens = 512;
  bool flash_attention = false;  // of the generating context; see FlashAttention
};

struct LlamaContexts {
  ThreadpoolPtr threads;     // first: the contexts use it to their end
  LlamaContextPtr generate;  // F16, one stream per sequence
  StateForm generate_form;
  LlamaContextPtr encode;  // F32, unified, kEncodeSequences sequences, flash attention
};

// kExhausted, naming `label`, if the memory is not there.
Result<LlamaContexts> MakeContexts(llama_model* model, const ContextSizes& sizes,
                                   const std::string& label);

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_CONTEXTS_H_
