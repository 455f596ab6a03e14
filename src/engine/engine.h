// Who computes: a language model that can encode facts, take injected KV and generate.
#ifndef INFERSCALE_ENGINE_ENGINE_H_
#define INFERSCALE_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "kv/fact_kv.h"
#include "kv/fingerprint.h"
#include "kv/prompt_format.h"

namespace inferscale {

// Tokens [first, first + tokens) of a prompt are taken from tokens [record_token, ...) of a record
// instead of being computed. The record is of the model's shape, or of the same shape quantised; it
// and its key scales must stay valid until the generation has injected it (Generation::Next has
// returned once). An engine that stores KV itself takes the record of that key instead.
struct PromptSpan {
  uint32_t first = 0;
  uint32_t tokens = 0;
  uint32_t record_token = 0;
  FactKvView record;
  std::shared_ptr<const void> keep_alive;  // e.g. a pin; released after injection
  Hash128 key;                             // for an engine that stores KV itself
};

// Spans are sorted, do not overlap and leave at least the last token to be computed.
struct Prompt {
  std::vector<Token> tokens;
  std::vector<PromptSpan> spans;
};

struct Sampling {
  uint32_t max_tokens = 256;
  float temperature = 0.0F;  // 0: the most likely token
  float top_p = 1.0F;
  int32_t top_k = 0;  // 0: all
  float min_p = 0.0F;
  uint64_t seed = 0;
  std::vector<std::string> stop{};  // generation ends before the first of these appears in the text
  std::string grammar{};  // GBNF with a rule "root" that the whole answer keeps to; empty: none
  // JSON Schema that the whole answer, JSON, keeps to; empty: none. kUnsupported by an engine that
  // does not understand all of it. Not together with `grammar`.
  std::string json_schema{};
  std::optional<uint32_t> logprobs{};  // Generation::TakeLogprobs, with so many at each place
};

// A token that may stand at a place of an answer, and the logarithm of its probability there.
struct TokenLogprob {
  std::string text;  // its bytes, may be part of a character; a control token's own name
  float logprob = 0.0F;
};
// What the model says of one place of an answer, by its logits as they are: before temperature,
// filters and grammar.
struct PlaceLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the most likely ones, best first
};

struct GenerateRequest {
  Prompt prompt;
  Sampling sampling;
  // Nonzero: keep the sequence after the answer under this number. A later request of the same
  // number whose prompt begins with the tokens held (prompt and answer) computes only what follows.
  uint64_t session = 0;
  std::string tenant{};  // whose records the spans name, for an engine that stores KV itself
  // Once it is requested, from any thread, the generation soon ends with kCancelled, also while it
  // waits for its turn.
  std::stop_token stop{};
  std::string traceparent{};  // the trace that it is part of, for an engine behind HTTP; or empty
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled };

struct GenerateStats {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;        // held from the session
  uint32_t injected_tokens = 0;      // written as KV
  bool injected_is_planned = false;  // as asked for; the engine does not say what it took
  uint32_t prefilled_tokens = 0;     // computed
  uint32_t generated_tokens = 0;
  double queue_ms = 0;        // waiting for a slot
  double inject_ms = 0;       // gather, rotate, write
  double prefill_ms = 0;      // computing the rest of the prompt, first token sampled
  double first_token_ms = 0;  // from Start to the first token
  double total_ms = 0;
};

// A running generation. Used by one thread.
class Generation {
 public:
  virtual ~Generation() = default;  // cancels

  // The next piece of text, valid UTF-8 and never empty; nullopt at the end. Blocks.
  virtual Result<std::optional<std::string>> Next() = 0;
  virtual void Cancel() = 0;
  // If Sampling::logprobs asks for it: of the tokens behind the text that has come and was not
  // taken yet; after the end, of all that are left. Not of the end-of-turn token.
  virtual std::vector<PlaceLogprobs> TakeLogprobs() { return {}; }

  // Complete once Next() has returned nullopt.
  virtual FinishReason finish_reason() const = 0;
  virtual const GenerateStats& stats() const = 0;
  // What was generated, as ids; with the end-of-turn token if the model produced it.
  virtual const std::vector<Token>& tokens() const = 0;
};

// One sequence to encode: `tokens` computed behind EncodeRequest::prefix, of which the KV of the
// ranges in `captures` is kept.
struct EncodeItem {
  struct Range {
    uint32_t first = 0;
    uint32_t tokens = 0;
    Hash128 key{};  // what an engine that stores KV itself stores it as
  };
  std::vector<Token> tokens;
  std::vector<Range> captures;
};

struct EncodeRequest {
  std::vector<Token> prefix;  // computed once and kept while the next requests have the same
  std::vector<EncodeItem> items;
  std::stop_token stop{};  // once it is requested, Encode soon returns kCancelled
  std::string tenant{};    // of all records, for an engine that stores KV itself
};

struct EncodedRecord {
  uint32_t tokens = 0;
  std::vector<std::byte> data;  // FactKv of the model's shape
};

struct EncodeResult {
  std::vector<std::vector<EncodedRecord>> records;  // [item][capture]; none if it stores KV itself
  uint64_t computed_tokens = 0;  // what the model had to compute, prefix included
  double ms = 0;
};

struct SelfTest {
  bool passed = false;
  std::string summary;              // one line for a user
  std::vector<double> layer_error;  // per layer, |K(p) - R(p) K(0)| relative to |K|
};

struct ModelInfo {
  std::string name;          // from the file's metadata
  std::string architecture;  // "llama", "qwen3", ...
  std::string description;   // size and quantisation, for people
  std::string engine_version;
  KvShape shape;  // of one rank
  Fingerprint fingerprint;
  uint32_t context_tokens = 0;  // per sequence
  uint32_t encode_tokens = 0;   // longest prefix + item that Encode takes
  uint32_t vocabulary = 0;
  bool injection = false;  // false: everything is prefilled, and self_test says why
  // The engine puts encoded KV into the store itself and takes it from there: it stands in the
  // store's catalog soon after Encode, and no bytes pass through the caller.
  bool stores_kv = false;
  uint32_t kv_ranks = 1;  // that keep each record in parts of `shape` (kv/rank_key.h)
  // What it computed of a prompt it has again for a longer one, up to a multiple of so many tokens;
  // KV can be injected from there on.
  uint32_t cache_block_tokens = 1;
  std::string kv_dir;  // the folder of the store that it uses, as it names it; empty if not itself
  SelfTest self_test;
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelInfo& info() const = 0;
  virtual const PromptFormat& format() const = 0;
  // Text of one or more tokens; may end inside a character. Control tokens give nothing.
  virtual std::string Detokenize(std::span<const Token> tokens) const = 0;

  // The rest is thread-safe. Start returns as soon as the request is queued; kInvalid for a prompt
  // that is empty or longer than the context, kExhausted if the queue is full. Encode blocks until
  // all is computed.
  virtual Result<std::unique_ptr<Generation>> Start(GenerateRequest request) = 0;
  virtual Result<EncodeResult> Encode(const EncodeRequest& request) = 0;
  // Logits that predict continuation[0], continuation[1], ...: [continuation][vocabulary]. With a
  // session its sequence is kept, as by Start: several continuations of one prompt, and its answer,
  // then cost one computation of the prompt.
  virtual Result<std::vector<std::vector<float>>> Score(const Prompt& prompt,
                                                        std::span<const Token> continuation,
                                                        uint64_t session) = 0;
  // Forgets a session's sequence.
  virtual void EndSession(uint64_t session) = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_ENGINE_H_
