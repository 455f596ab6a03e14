// A llama_batch that grows token by token, one sequence per token.
#ifndef INFERSCALE_ENGINE_LLAMA_BATCH_H_
#define INFERSCALE_ENGINE_LLAMA_BATCH_H_

#include <llama.h>

#include <cstdint>
#include <vector>

#include "kv/shape.h"

namespace inferscale {

constexpr int kDecodeAborted = 2;  // llama_decode's code after its abort callback said so

class Batch {
 public:
  void Clear() {
    tokens_.clear();
    positions_.clear();
    sequences_.clear();
    outputs_.clear();
  }
  void Add(Token token, llama_pos position, llama_seq_id sequence, bool output) {
    tokens_.push_back(token);
    positions_.push_back(position);
    sequences_.push_back(sequence);
    outputs_.push_back(output ? 1 : 0);
  }
  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  bool empty() const { return tokens_.empty(); }

  // llama_decode's code: 0 if all went well.
  int Decode(llama_context* context) {
    counts_.assign(tokens_.size(), 1);
    sequence_lists_.resize(tokens_.size());
    for (size_t i = 0; i < tokens_.size(); ++i) sequence_lists_[i] = &sequences_[i];
    llama_batch batch{};
    batch.n_tokens = static_cast<int32_t>(tokens_.size());
    batch.token = tokens_.data();
    batch.pos = positions_.data();
    batch.n_seq_id = counts_.data();
    batch.seq_id = sequence_lists_.data();
    batch.logits = outputs_.data();
    return llama_decode(context, batch);
  }

 private:
  std::vector<llama_token> tokens_;
  std::vector<llama_pos> positions_;
  std::vector<llama_seq_id> sequences_;
  std::vector<int8_t> outputs_;
  std::vector<int32_t> counts_;
  std::vector<llama_seq_id*> sequence_lists_;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_BATCH_H_
