// A BERT encoder with its own kernels (bert_kernels.h), for the models that most embedders are:
// all-MiniLM, bge-small, e5. About twice as fast as the same graph through libllama.
#ifndef INFERSCALE_EMBED_BERT_MODEL_H_
#define INFERSCALE_EMBED_BERT_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "embed/bert_kernels.h"

namespace inferscale {

class BertModel {
 public:
  virtual ~BertModel() = default;

  // Reads a GGUF. Null if it is some other model than this code knows, down to its pooling, or
  // can't be read. Texts may have `max_tokens` at most, or fewer if the model has fewer positions.
  static std::unique_ptr<BertModel> Load(const std::string& path, size_t max_tokens,
                                         BertPrecision precision);

  virtual uint32_t dims() const = 0;
  virtual size_t max_tokens() const = 0;
  virtual size_t vocabulary() const = 0;  // tokens

  // One vector per text, not normalised. Every text has 1 to max_tokens() tokens below
  // vocabulary(). Thread-safe.
  virtual std::vector<std::vector<float>> Run(
      std::span<const std::vector<int32_t>> texts) const = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_EMBED_BERT_MODEL_H_
