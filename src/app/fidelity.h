// How near two computations of the same text are, told from their logits; and full prefill of the
// same memory in another order, beside which a difference can be judged.
#ifndef INFERSCALE_APP_FIDELITY_H_
#define INFERSCALE_APP_FIDELITY_H_

#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "app/app.h"

namespace inferscale {

using Logits = std::vector<std::vector<float>>;  // [position][vocabulary], as of Engine::Score

// -ln softmax(logits)[token].
double NegLogLikelihood(std::span<const float> logits, Token token);

// The first of those with the highest logit.
Token MostLikely(std::span<const float> logits);

// KL(softmax(p) || softmax(q)) in nats; of equal sizes. Never below zero, zero for equal logits.
double KlDivergence(std::span<const float> p, std::span<const float> q);

// Position by position.
struct Fidelity {
  std::vector<double> kl;      // KL(reference || other)
  std::vector<bool> same_top;  // the most likely token is the same
};
Fidelity Compare(const Logits& reference, const Logits& other);

// The tokens of a composed prompt with its episodes in another order; what was said together stays
// together. `used` are its facts in order, behind which `tail_tokens` stand. Nothing is injected.
Prompt ShuffleEpisodes(const Prompt& prompt, std::span<const UsedFact> used, size_t tail_tokens,
                       std::mt19937_64& random);

}  // namespace inferscale

#endif  // INFERSCALE_APP_FIDELITY_H_
