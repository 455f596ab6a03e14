// Moves facts' KV in and out of the sequences of one llama context, through state blobs.
//
// Of a model with sliding windows llama.cpp forgets what no later token sees. So a sequence that
// has grown past the window can only be continued, not cut back, and a token's KV is to be captured
// while it is among the last `window` tokens.
#ifndef INFERSCALE_ENGINE_LLAMA_SEQUENCE_KV_H_
#define INFERSCALE_ENGINE_LLAMA_SEQUENCE_KV_H_

#include <llama.h>

#include <limits>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/llama/model_kv.h"
#include "engine/llama/page_buffer.h"
#include "engine/llama/state_blob.h"
#include "kv/fact_kv.h"
#include "ops/inject/inject.h"

namespace inferscale {

// Tokens of a record and the position that the first of them gets or has.
struct SequenceSpan {
  FactKvView record;
  uint32_t record_token = 0;
  uint32_t tokens = 0;
  int32_t position = 0;
};

struct SequenceCapture {
  MutableFactKvView record;
  uint32_t record_token = 0;
  uint32_t tokens = 0;
  int32_t position = 0;
};

// Belongs to the thread that owns the context.
class SequenceKv {
 public:
  // `cache` is the dtype of the context's cache, `form` that of its states: streams are 1 if the
  // cache is unified, else its n_seq_max. Values are transposed only in a cache of 16 bits.
  SequenceKv(ModelKv model, Dtype cache, const StateForm& form, int threads);

  // Can a sequence of `held` tokens lose its last ones and be as if they had never been?
  bool CanCut(size_t held) const { return model_.window == 0 || held < model_.window; }
  // How many of a sequence's last tokens can be captured.
  uint32_t CapturableTokens() const {
    return model_.window == 0 ? std::numeric_limits<uint32_t>::max() : model_.window;
  }

  // Adds the spans to sequence `seq`, which holds `held` tokens and keeps them. The positions of a
  // span must not be held. On any error the sequence is empty afterwards.
  Status Inject(llama_context* context, llama_seq_id seq, uint32_t held,
                std::span<const SequenceSpan> spans);

  // Reads positions [position, position + tokens) of `seq` into each record. kNotFound if the
  // sequence does not hold one of them.
  Status Capture(llama_context* context, llama_seq_id seq,
                 std::span<const SequenceCapture> captures);

 private:
  // What a request adds to one cache: rows of the sequence's state that stay, then new ones.
  struct Growth {
    std::vector<size_t> kept;  // among the state's rows
    std::vector<InjectSpan> added;
    uint32_t added_rows = 0;
  };

  Result<std::vector<StateRows>> ReadState(llama_context* context, llama_seq_id seq);
  Status CheckState(const StateRows& rows, size_t cache) const;
  Status FillBlob(llama_context* context, llama_seq_id seq, uint32_t held,
                  std::span<const SequenceSpan> spans, MutableByteSpan& blob);
  Growth Grow(size_t cache, const StateRows& old, std::span<const SequenceSpan> spans,
              std::vector<int32_t>& positions) const;
  Status InjectInto(size_t cache, const Growth& growth, const StateRows& rows);
  Status CaptureFrom(size_t cache, StateRows& rows, std::span<const SequenceCapture> captures);
  std::vector<std::byte*> ValueRows(size_t count, uint32_t layers);
  template <typename Work>
  void ForEachLayer(uint32_t layers, size_t bytes, const Work& work) const;
  RopeTables Tables() const { return {tables_, model_.ropes.layer_spec}; }

  ModelKv model_;
  Dtype dtype_;  // of the cache
  StateForm form_;
  std::vector<RopeTable> tables_;
  int threads_;
  PageBuffer state_;   // as read from the context
  PageBuffer blob_;    // as written to it
  PageBuffer values_;  // [layer][row], of a context that has them transposed
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_SEQUENCE_KV_H_
