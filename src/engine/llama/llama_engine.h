// The embedded engine: a GGUF model through libllama, in this process.
#ifndef INFERSCALE_ENGINE_LLAMA_LLAMA_ENGINE_H_
#define INFERSCALE_ENGINE_LLAMA_LLAMA_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/llama/handles.h"
#include "engine/llama/model_info.h"

namespace inferscale {

// In the context that generates. On a CPU ggml's flash attention is slow for the few tokens of a
// question or an answer, and sums in f16 for them; on a GPU it is fast, and values that are kept in
// rows for it are written at once. Facts are always encoded with it: those batches are large.
enum class FlashAttention : uint8_t {
  kAuto,  // on if libllama can use a GPU
  kOn,
  kOff,
};

struct LlamaEngineOptions {
  std::string model_path{};
  int threads = 0;              // 0: as many as the machine has
  uint32_t slots = 2;           // requests that are computed at a time
  uint32_t context_tokens = 0;  // of a slot; 0: the model's, at most 8192
  uint32_t encode_tokens = 0;   // longest prefix + item; 0: 4096, at most the context
  uint32_t queue_limit = 64;    // requests that may wait for a slot
  // While the first of them has waited so long, further ones are refused: who waits longer than a
  // client's patience is computed for nobody, and under load that comes to be everybody. 0: never.
  std::chrono::milliseconds queue_wait{0};
  FlashAttention flash_attention = FlashAttention::kAuto;
  bool injection = true;  // false: prefill everything, as for a model that can't
  // While there is nothing to do, what sessions hold as injected KV is computed anew, so that their
  // next turns stand on that. Takes the memory of one more slot.
  bool heal = false;
};

// Loads the model and tests it. kNotFound, kInvalid, kCorrupt or kUnsupported with the file's name
// if it can't be served. A model that fails its self-test is served without injection;
// Engine::info() says so.
Result<std::unique_ptr<Engine>> OpenLlamaEngine(const LlamaEngineOptions& options);

// The same for a model that is loaded already, e.g. one made in memory.
struct LoadedLlamaModel {
  LlamaModelPtr model;
  std::string label;  // stands in messages
  Hash128 weights;
  FileTraits file;
};
Result<std::unique_ptr<Engine>> MakeLlamaEngine(LoadedLlamaModel loaded,
                                                const LlamaEngineOptions& options);

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_LLAMA_ENGINE_H_
