// Owners of libllama's and ggml's objects.
#ifndef INFERSCALE_ENGINE_LLAMA_HANDLES_H_
#define INFERSCALE_ENGINE_LLAMA_HANDLES_H_

#include <ggml-cpu.h>
#include <gguf.h>
#include <llama.h>

#include <memory>

#include "base/c_deleter.h"

namespace inferscale {

using LlamaModelPtr = std::unique_ptr<llama_model, CDeleter<llama_model_free>>;
using LlamaContextPtr = std::unique_ptr<llama_context, CDeleter<llama_free>>;
using LlamaSamplerPtr = std::unique_ptr<llama_sampler, CDeleter<llama_sampler_free>>;
using GgufPtr = std::unique_ptr<gguf_context, CDeleter<gguf_free>>;
using ThreadpoolPtr = std::unique_ptr<ggml_threadpool, CDeleter<ggml_threadpool_free>>;

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_HANDLES_H_
