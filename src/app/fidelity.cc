#include "app/fidelity.h"

#include <algorithm>
#include <cmath>

namespace inferscale {
namespace {

// ln of the sum of exp(logits), in double: a vocabulary has a hundred thousand small terms.
double LogSumExp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x} - top);
  return top + std::log(sum);
}

}  // namespace

Token MostLikely(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double NegLogLikelihood(std::span<const float> logits, Token token) {
  return LogSumExp(logits) - double{logits[static_cast<size_t>(token)]};
}

double KlDivergence(std::span<const float> p, std::span<const float> q) {
  const double p_log_sum = LogSumExp(p);
  const double q_log_sum = LogSumExp(q);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = double{p[i]} - p_log_sum;
    const double weight = std::exp(log_p);
    if (weight > 0) kl += weight * (log_p - (double{q[i]} - q_log_sum));
  }
  return std::max(kl, 0.0);  // rounding
}

Fidelity Compare(const Logits& reference, const Logits& other) {
  Fidelity out;
  for (size_t i = 0; i < reference.size(); ++i) {
    out.kl.push_back(KlDivergence(reference[i], other[i]));
    out.same_top.push_back(MostLikely(reference[i]) == MostLikely(other[i]));
  }
  return out;
}

Prompt ShuffleEpisodes(const Prompt& prompt, std::span<const UsedFact> used, size_t tail_tokens,
                       std::mt19937_64& random) {
  size_t fact_tokens = 0;
  for (const UsedFact& fact : used) fact_tokens += fact.tokens;
  const auto tail = prompt.tokens.end() - static_cast<ptrdiff_t>(tail_tokens);
  auto at = tail - static_cast<ptrdiff_t>(fact_tokens);
  Prompt out;
  out.tokens.assign(prompt.tokens.begin(), at);

  std::vector<std::vector<Token>> episodes;
  for (size_t i = 0; i < used.size(); ++i) {
    if (i == 0 || used[i].fact.episode != used[i - 1].fact.episode) episodes.emplace_back();
    const auto end = at + static_cast<ptrdiff_t>(used[i].tokens);
    episodes.back().insert(episodes.back().end(), at, end);
    at = end;
  }
  std::shuffle(episodes.begin(), episodes.end(), random);
  for (const auto& tokens : episodes) {
    out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
  }
  out.tokens.insert(out.tokens.end(), tail, prompt.tokens.end());
  return out;
}

}  // namespace inferscale
