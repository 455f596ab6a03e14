// One sequence of the generating context, and the request that it works on.
#ifndef INFERSCALE_ENGINE_LLAMA_SLOT_H_
#define INFERSCALE_ENGINE_LLAMA_SLOT_H_

#include <llama.h>

#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/llama/batch.h"
#include "engine/llama/channel.h"
#include "engine/llama/grammar.h"
#include "engine/llama/sampler.h"
#include "engine/llama/sequence_kv.h"
#include "engine/llama/text_stream.h"
#include "engine/llama/vocabulary.h"

namespace inferscale {

using Logits = std::vector<std::vector<float>>;

// A request to generate, or (with `score`) to compute logits of the prompt's last tokens.
struct Task {
  explicit Task(GenerateRequest request);

  Prompt prompt;
  uint64_t session = 0;
  uint32_t max_tokens = 0;
  uint32_t first_output = 0;  // the first token of the prompt whose logits are wanted
  Sampler sampler;
  std::optional<Grammar> grammar;
  std::optional<uint32_t> logprobs;
  TextStream text;
  std::shared_ptr<Channel> channel = std::make_shared<Channel>();
  std::optional<std::promise<Result<Logits>>> score;

  std::vector<Token> generated;
  Logits logits;  // of `score`
  GenerateStats stats;
  Stopwatch since_start;

  void Complete(FinishReason reason);
  void Fail(const Error& error);
};

class Slot {
 public:
  Slot(llama_context* context, llama_seq_id sequence, SequenceKv* kv, const Vocabulary* vocabulary,
       uint32_t capacity);

  bool busy() const { return task_ != nullptr; }
  uint64_t session() const { return session_; }
  bool cancelled() const { return task_->channel->cancelled(); }
  // Waiting for its first token?
  bool in_prompt() const { return busy() && held_.size() < task_->prompt.tokens.size(); }

  // What the sequence holds.
  const std::vector<Token>& held() const { return held_; }
  // Does the sequence rest, kept for a session, with KV that was injected?
  bool rests_on_injected() const { return !busy() && session_ != 0 && has_injected_; }
  // Continues with another sequence, in which the same tokens were computed; returns its own.
  llama_seq_id Exchange(llama_seq_id computed);

  // Takes the request on. Keeps what the sequence holds as far as the prompt begins with it.
  void Begin(std::unique_ptr<Task> task);
  // Injects the spans at which the prompt has arrived. False if that failed: then the sequence is
  // empty and all of the prompt will be computed.
  bool Inject();
  // Puts the next tokens into `batch`, at most `max_tokens` and `max_outputs` with logits. Returns
  // the number of the latter.
  uint32_t AddTo(Batch& batch, uint32_t max_tokens, uint32_t max_outputs);
  // After the batch was decoded: takes the logits, and finishes the task if it is complete.
  void TakeOutputs();
  // Ends the task. A session's sequence is kept unless there was an error.
  void Finish(FinishReason reason);
  void Fail(const Error& error);
  // Forgets the sequence; with a task, as soon as that ends.
  void EndSession();

 private:
  Token TokenAt(size_t index) const;
  void Emit(std::span<const float> logits);
  std::vector<PlaceLogprobs> LogprobsOf(std::span<const float> logits, Token chosen) const;
  void Release();

  llama_context* context_;
  llama_seq_id sequence_;
  SequenceKv* kv_;
  const Vocabulary* vocabulary_;
  uint32_t capacity_;

  std::vector<Token> held_;    // what the cache holds
  bool has_injected_ = false;  // some of it
  uint64_t session_ = 0;
  std::unique_ptr<Task> task_;
  size_t next_span_ = 0;
  uint32_t pending_ = 0;              // tokens in the batch that is being decoded
  std::vector<int32_t> output_rows_;  // in that batch
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_SLOT_H_
