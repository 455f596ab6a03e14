// Moves facts' KV in and out of the sequences of one llama context, through state blobs.
#ifndef INFERSCALE_ENGINE_LLAMA_SEQUENCE_KV_H_
#define INFERSCALE_ENGINE_LLAMA_SEQUENCE_KV_H_

#include <llama.h>

#include <span>
#include <vector>

#include "base/result.h"
#include "engine/llama/page_buffer.h"
#include "engine/llama/state_blob.h"
#include "kv/fact_kv.h"
#include "kv/rope.h"
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
  int32_t position = 0;  // of record's first token
};

// Belongs to the thread that owns the context.
class SequenceKv {
 public:
  // `shape` is that of the records; `cache` the dtype of the context's cache, `form` that of its
  // states: streams are 1 if the cache is unified, else its n_seq_max. Values are transposed only
  // in a cache of 16 bits.
  SequenceKv(const KvShape& shape, Dtype cache, const StateForm& form, const LayerRopes& ropes,
             int threads);

  // Adds the spans to sequence `seq`, which holds `held` tokens and keeps them. The positions of a
  // span must not be held. On any error the sequence is empty afterwards.
  Status Inject(llama_context* context, llama_seq_id seq, uint32_t held,
                std::span<const SequenceSpan> spans);

  // Reads positions [position, position + record.tokens) of `seq` into each record. kNotFound if
  // the sequence does not hold one of them.
  Status Capture(llama_context* context, llama_seq_id seq,
                 std::span<const SequenceCapture> captures);

 private:
  Result<ByteSpan> ReadState(llama_context* context, llama_seq_id seq);
  Status FillBlob(llama_context* context, llama_seq_id seq, uint32_t held,
                  std::span<const SequenceSpan> spans, MutableByteSpan& blob);
  Status CheckState(const StateRows& rows) const;
  std::vector<std::byte*> ValueRows(size_t count);
  template <typename Work>
  void ForEachLayer(size_t bytes, const Work& work) const;
  RopeTables Tables() const { return {tables_, layer_table_}; }

  KvShape shape_;
  KvShape cache_shape_;  // the same in the cache's dtype
  StateForm form_;
  std::vector<RopeTable> tables_;
  std::vector<uint8_t> layer_table_;
  int threads_;
  PageBuffer state_;   // as read from the context
  PageBuffer blob_;    // as written to it
  PageBuffer values_;  // [layer][row], of a context that has them transposed
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_SEQUENCE_KV_H_
