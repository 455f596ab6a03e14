// Encodes facts: computes token sequences behind a common prefix and captures their KV.
//
// The context has an F32 cache, because taking the rotation off an f16 key loses more than the
// record's own f16 does. The prefix is computed once in sequence 0 and shared with the items'
// sequences, of which several are computed in one batch.
#ifndef INFERSCALE_ENGINE_LLAMA_ENCODER_H_
#define INFERSCALE_ENGINE_LLAMA_ENCODER_H_

#include <atomic>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/llama/batch.h"
#include "engine/llama/handles.h"
#include "engine/llama/sequence_kv.h"

namespace inferscale {

// What a context for an Encoder must have; kEncodeSequences is its n_seq_max.
constexpr uint32_t kEncodeSequences = 17;  // the prefix and 16 items

class Encoder;

// A request on its way. The request must outlive it.
class EncodeJob {
 public:
  explicit EncodeJob(const EncodeRequest& request);

 private:
  friend class Encoder;
  struct Running {
    size_t item = 0;
    llama_seq_id sequence = 0;
    uint32_t done = 0;      // tokens in the cache
    uint32_t captured = 0;  // of those
    uint32_t pending = 0;   // tokens in the batch
  };

  const EncodeRequest& request_;
  EncodeResult result_;
  size_t next_item_ = 0;
  std::vector<Running> running_;
  Stopwatch watch_;
};

// Belongs to one thread, which works on one job at a time.
class Encoder {
 public:
  // `context` outlives it and is used by nobody else; `capacity` is its number of tokens. A step
  // is given up soon after `interrupt` becomes true, but never two in a row, and soon after the
  // job's request is told to stop.
  Encoder(llama_context* context, const ModelKv& kv, uint32_t capacity, uint32_t vocabulary,
          int threads, const std::atomic<bool>* interrupt);
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // kInvalid, naming the item, if a job can't be run: no tokens, too long, a capture outside.
  Status Check(const EncodeRequest& request) const;

  // Computes up to `max_tokens` more tokens, or none if interrupted. True when the job is
  // complete. After an error the job is over; kCancelled if it was told to stop.
  Result<bool> Step(EncodeJob& job, uint32_t max_tokens);
  EncodeResult Take(EncodeJob& job) const;

 private:
  Result<bool> Advance(EncodeJob& job, uint32_t max_tokens);
  Result<bool> StepPrefix(EncodeJob& job, uint32_t max_tokens);
  void AdmitItems(EncodeJob& job);
  Status StepItems(EncodeJob& job, uint32_t max_tokens);
  Status Capture(EncodeJob& job, EncodeJob::Running& run);
  // False if interrupted: the cache is as before.
  Result<bool> Decode(EncodeJob& job);
  static bool ShouldAbort(void* encoder);

  llama_context* context_;
  llama_memory_t memory_;
  KvShape shape_;
  uint32_t capacity_;
  uint32_t vocabulary_;
  SequenceKv kv_;
  Batch batch_;
  const std::atomic<bool>* interrupt_;
  bool was_interrupted_ = false;
  const std::stop_token* stop_ = nullptr;  // of the job that is being computed
  std::vector<Token> prefix_;              // what sequence 0 holds
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_ENCODER_H_
