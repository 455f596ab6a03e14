// Chooses the next token from logits.
#ifndef INFERSCALE_ENGINE_LLAMA_SAMPLER_H_
#define INFERSCALE_ENGINE_LLAMA_SAMPLER_H_

#include <random>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace inferscale {

// kInvalid if a value is out of its range; names it.
Status CheckSampling(const Sampling& sampling);

// Temperature is applied first, then top-k, top-p of what is left and min-p. The same seed and
// logits give the same tokens. Ties go to the smaller id.
class Sampler {
 public:
  explicit Sampler(const Sampling& sampling);

  Token Sample(std::span<const float> logits);

 private:
  struct Candidate {
    float weight;  // exp((logit - largest) / temperature)
    Token token;
  };

  double Uniform();  // [0, 1)
  Token Draw(std::span<const Candidate> candidates, double total);
  // The candidates that the filters leave, most likely first; their sum goes to `total`.
  std::span<const Candidate> Filter(double& total);

  float temperature_;
  float top_p_;
  float min_p_;
  size_t top_k_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_SAMPLER_H_
