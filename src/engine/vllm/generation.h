// A streamed answer of a vLLM server.
#ifndef INFERSCALE_ENGINE_VLLM_GENERATION_H_
#define INFERSCALE_ENGINE_VLLM_GENERATION_H_

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/http/sse.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "engine/vllm/protocol.h"
#include "engine/vllm/servers.h"

namespace inferscale {

// What it takes to ask again. The bodies say the same, but for the plan.
struct VllmRequest {
  std::string body;
  std::string plain_body;  // without a plan; empty if `body` has none
  uint64_t session = 0;
  uint32_t prompt_tokens = 0;
  struct Range {
    uint32_t first = 0;
    uint32_t end = 0;
  };
  std::vector<Range> planned;  // tokens to be injected, sorted
  std::string traceparent;
  std::chrono::milliseconds silence{0};
  uint32_t top_logprobs = 0;
  std::stop_token stop;
};

class VllmGeneration final : public Generation {
 public:
  // `servers` and `tokenizer` must outlive it.
  VllmGeneration(VllmServers& servers, const Tokenizer& tokenizer, VllmRequest request);

  // Picks a server and sends the request; the reasons that Pick has.
  Status Send();

  Result<std::optional<std::string>> Next() override;
  void Cancel() override;
  std::vector<PlaceLogprobs> TakeLogprobs() override { return std::exchange(logprobs_, {}); }
  FinishReason finish_reason() const override { return finish_; }
  const GenerateStats& stats() const override { return stats_; }
  const std::vector<Token>& tokens() const override { return tokens_; }

 private:
  // One event's text; empty at the end of the stream.
  Result<std::string> ReadPart();
  Result<std::optional<std::string>> NextEvent();
  Status Retry(const Error& error);
  void Take(const VllmUsage& usage);
  Status Finish();

  VllmServers& servers_;
  const Tokenizer& tokenizer_;
  VllmRequest request_;
  const Stopwatch watch_;

  VllmServer* server_ = nullptr;
  std::unique_ptr<HttpStream> stream_;
  SseParser events_;
  int attempts_ = 0;
  bool begun_ = false;  // something of the answer has come
  bool finish_known_ = false;
  bool refused_ = false;  // by a status; else a failure is one of the connection
  bool done_ = false;
  bool ids_missing_ = false;  // the server sends text without ids
  std::string text_;
  std::vector<Token> tokens_;
  std::vector<PlaceLogprobs> logprobs_;
  FinishReason finish_ = FinishReason::kStop;
  GenerateStats stats_;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_VLLM_GENERATION_H_
