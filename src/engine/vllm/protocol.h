// The bytes between this engine and a vLLM server: bodies of requests, and what answers say
// (docs/vllm_protocol.md). Answers are bytes from outside: kCorrupt says what is wrong with one.
#ifndef INFERSCALE_ENGINE_VLLM_PROTOCOL_H_
#define INFERSCALE_ENGINE_VLLM_PROTOCOL_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace inferscale {

constexpr uint32_t kVllmProtocol = 1;

// ---- requests ----------------------------------------------------------------------------------

// The object that travels in `kv_transfer_params`, as JSON.
std::string InfoOp();
std::string SelfTestOp(int step);
std::string InjectOp(std::string_view tenant, std::span<const PromptSpan> spans);
// The `cache_salt` of a request with that plan.
std::string PlanSalt(const Fingerprint& fingerprint, std::string_view tenant,
                     std::span<const PromptSpan> spans);
// `before` tokens of the prompt stand before the item's.
std::string EncodeOp(std::string_view tenant, std::span<const EncodeItem::Range> captures,
                     size_t before);

struct CompletionBody {
  std::string_view model;
  std::span<const Token> prompt;
  Sampling sampling;
  std::span<const Token> stop_tokens{};
  std::string_view kv_params{};  // one of the above, or nothing
  std::string_view cache_salt{};
  bool stream = false;
};
// Every parameter is said: a server may have defaults of its own.
std::string MakeCompletion(const CompletionBody& body);
// `with_bos`: as a prompt by itself begins.
std::string MakeTokenize(std::string_view model, std::string_view text, bool with_bos = false);
std::string MakeDetokenize(std::string_view model, std::span<const Token> tokens);

// ---- answers -----------------------------------------------------------------------------------

struct ServedModel {
  std::string id;
  uint32_t context_tokens = 0;  // 0: not said
};
Result<ServedModel> ParseModels(std::string_view body);  // the first

struct TokenizerInfo {
  std::optional<Token> bos;
  std::vector<std::pair<std::string, Token>> special;  // taken whole out of any text
  std::string chat_template;
};

enum class SelfTestState : uint8_t { kNone, kPassed, kFailed };

// What the connector says of itself.
struct ConnectorInfo {
  std::string version;
  std::string vllm;
  Fingerprint fingerprint;
  KvShape shape;  // of one rank
  uint32_t ranks = 1;
  uint32_t block_tokens = 1;  // its prefix cache ends at multiples of so many
  uint32_t context_tokens = 0;
  std::string dir;
  bool injection = false;
  std::string reason;
  std::optional<TokenizerInfo> tokenizer;  // none: it could not find out
  SelfTestState self_test = SelfTestState::kNone;
  double worst = 0;
  std::vector<double> layers;
};
// Of a whole answer to an `info` request. kNotFound if it has no object of the connector's,
// kUnsupported if that speaks another version.
Result<ConnectorInfo> ParseInfo(std::string_view body);

// Of /tokenizer_info, which a server has with --enable-tokenizer-info-endpoint; without `bos`.
Result<TokenizerInfo> ParseTokenizerInfo(std::string_view body);

Result<std::vector<Token>> ParseTokens(std::string_view body);
Result<std::string> ParseDetokenized(std::string_view body);

struct VllmUsage {
  uint32_t prompt = 0;
  uint32_t completion = 0;
  std::optional<uint32_t> cached;  // the server says so only with --enable-prompt-tokens-details
};

// A whole answer, or one event of a stream.
struct CompletionPart {
  std::string text;
  std::vector<Token> tokens;
  std::vector<PlaceLogprobs> logprobs;  // `top` may have one more than was asked for
  std::optional<FinishReason> finish;
  std::optional<VllmUsage> usage;
};
// kTransient if it is an error that the server reports.
Result<CompletionPart> ParseCompletion(std::string_view json);

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_VLLM_PROTOCOL_H_
