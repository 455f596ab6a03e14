// Computes anew what a session holds as injected KV, while the engine has nothing else to do: its
// next turn then stands on the KV that full prefill would have given.
#ifndef INFERSCALE_ENGINE_LLAMA_HEALER_H_
#define INFERSCALE_ENGINE_LLAMA_HEALER_H_

#include <llama.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/llama/batch.h"
#include "engine/llama/slot.h"

namespace inferscale {

// Belongs to the thread that owns the context.
class Healer {
 public:
  // `spare` is a sequence of the context that no slot has. A step ends early, and with nothing
  // done, once `interrupt` is set.
  Healer(llama_context* context, llama_seq_id spare, const SequenceKv* kv, uint32_t step_tokens,
         const std::atomic<bool>* interrupt);

  // Whether there is something to compute for it.
  bool Wants(const Slot& slot) const {
    return slot.rests_on_injected() && slot.session() != given_up_;
  }
  // Computes the next tokens of what the slot holds; once that is all, the slot has the new
  // sequence, and its former one is the spare one.
  void Step(Slot& slot);

 private:
  static bool ShouldAbort(void* healer);
  // Takes back what was begun, as if the spare sequence held `computed_` only.
  void CutBack(size_t begun);
  void Clear();

  llama_context* context_;
  llama_seq_id spare_;
  const SequenceKv* kv_;
  uint32_t step_tokens_;
  const std::atomic<bool>* interrupt_;
  Batch batch_;
  uint64_t session_ = 0;         // that the spare sequence is for
  std::vector<Token> computed_;  // what it holds
  uint64_t given_up_ = 0;        // a session for which it failed
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_HEALER_H_
