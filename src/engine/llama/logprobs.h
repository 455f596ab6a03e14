// Logarithms of probabilities, from the logits that a model gives.
#ifndef INFERSCALE_ENGINE_LLAMA_LOGPROBS_H_
#define INFERSCALE_ENGINE_LLAMA_LOGPROBS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "kv/shape.h"

namespace inferscale {

struct RankedToken {
  Token token = 0;
  float logprob = 0.0F;
};

// log(exp(x[i]) / sum over j of exp(x[j])) for each logit x[i], a token's id being its index.
class Logprobs {
 public:
  // Not empty, and at least one is finite; must outlive it. Reads all of them once.
  explicit Logprobs(std::span<const float> logits);

  float Of(Token token) const;
  // The `count` most likely, best first; ties go to the smaller id.
  std::vector<RankedToken> Top(size_t count) const;

 private:
  std::span<const float> logits_;
  double log_sum_;  // of the exponentials
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_LOGPROBS_H_
