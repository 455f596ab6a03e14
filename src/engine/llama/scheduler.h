// The engine's one thread: it owns both contexts, admits requests to slots, computes one batch for
// all slots at a time (continuous batching) and encodes in between.
#ifndef INFERSCALE_ENGINE_LLAMA_SCHEDULER_H_
#define INFERSCALE_ENGINE_LLAMA_SCHEDULER_H_

#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/llama/encoder.h"
#include "engine/llama/healer.h"
#include "engine/llama/slot.h"

namespace inferscale {

// Logits rows that a generating context must have room for besides one per slot (Score).
constexpr uint32_t kScoreOutputs = 32;

struct QueueLimits {
  uint32_t requests = 64;
  // Nothing more is taken while the first of them has waited so long; 0: however long it has.
  std::chrono::milliseconds wait{0};
};

class Scheduler {
 public:
  // The slots' context has `batch_tokens` as n_batch. All that is passed by pointer outlives this.
  // `request_came` is the encoder's and the healer's interrupt: a new request does not wait for a
  // step of theirs. `healer` may be none.
  Scheduler(llama_context* context, std::vector<Slot> slots, Encoder* encoder,
            std::optional<Healer> healer, std::atomic<bool>* request_came, uint32_t batch_tokens,
            const QueueLimits& limits);
  ~Scheduler();  // ends what runs with kCancelled

  // kExhausted if the queue is full, or has not moved for too long.
  Status Submit(std::unique_ptr<Task> task) EXCLUDES(mutex_);
  // Blocks until done.
  Result<EncodeResult> Encode(const EncodeRequest& request) EXCLUDES(mutex_);
  void EndSession(uint64_t session) EXCLUDES(mutex_);

 private:
  struct EncodeWait {
    const EncodeRequest* request = nullptr;
    std::promise<Result<EncodeResult>> done;
  };
  struct SlotUse {
    Slot slot;
    uint64_t last_used = 0;
  };

  void Run();
  bool TakeWork() EXCLUDES(mutex_);
  void DropCancelled() REQUIRES(mutex_);
  Status CheckQueue() REQUIRES(mutex_);
  void Admit() REQUIRES(mutex_);
  SlotUse* SlotFor(const Task& task);
  void EndCancelled();
  void StepSlots();
  void StepEncode();
  // The slot that was used last of those that the healer wants, if there is nothing else to do.
  Slot* Patient();
  void StepHeal();
  void Shutdown() EXCLUDES(mutex_);
  bool AnyBusy() const;

  llama_context* context_;
  std::vector<SlotUse> slots_;
  Encoder* encoder_;
  std::optional<Healer> healer_;
  std::atomic<bool>* request_came_;
  uint32_t batch_tokens_;
  const QueueLimits limits_;
  uint64_t uses_ = 0;
  Batch batch_;
  std::unique_ptr<EncodeWait> encoding_;
  std::optional<EncodeJob> job_;
  std::chrono::steady_clock::time_point encode_due_{};  // a prompt waits for its next step

  Mutex mutex_;
  CondVar work_;
  std::deque<std::unique_ptr<Task>> queue_ GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<EncodeWait>> encodes_ GUARDED_BY(mutex_);
  std::vector<uint64_t> ended_sessions_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_SCHEDULER_H_
