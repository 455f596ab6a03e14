// The engine for GPUs and scale: vLLM servers, reached over HTTP. They compute, and their KV
// connector (python/inferscale/vllm) stores and injects KV; docs/vllm_protocol.md is the contract.
#ifndef INFERSCALE_ENGINE_VLLM_VLLM_ENGINE_H_
#define INFERSCALE_ENGINE_VLLM_VLLM_ENGINE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace inferscale {

struct VllmEngineOptions {
  std::vector<std::string> urls;  // "http://host:port"; servers of the same model
  std::string api_key;            // vLLM's own, sent as a bearer token if not empty
  uint32_t context_tokens = 0;    // at most so many; 0: the servers'
  std::chrono::milliseconds connect_timeout{5'000};
  std::chrono::milliseconds tokenize_timeout{10'000};
  std::chrono::milliseconds silence{300'000};  // of a server that computes; then it counts as gone
};

// At least one server must be up; the others are looked at when it is their turn. Runs the
// connector's self-test if no one has. Without a connector, or if it refuses, the model is served
// without injection and Engine::info() says why. kTransient if no server answers; kUnsupported if
// the model's template or tokenizer can't be had.
//
// Score is kUnsupported. Start sends the request; an answer that fails before its first token is
// asked for again, at last without KV. Which tokens were injected is known only from servers with
// --enable-prompt-tokens-details; else GenerateStats::injected_is_planned is true.
Result<std::unique_ptr<Engine>> OpenVllmEngine(const VllmEngineOptions& options);

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_VLLM_VLLM_ENGINE_H_
