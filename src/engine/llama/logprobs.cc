#include "engine/llama/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace inferscale {

Logprobs::Logprobs(std::span<const float> logits) : logits_(logits) {
  const double largest = double{*std::max_element(logits.begin(), logits.end())};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  log_sum_ = largest + std::log(sum);
}

float Logprobs::Of(Token token) const {
  return static_cast<float>(double{logits_[static_cast<size_t>(token)]} - log_sum_);
}

std::vector<RankedToken> Logprobs::Top(size_t count) const {
  std::vector<Token> ids(logits_.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto more_likely = [this](Token a, Token b) {
    const float of_a = logits_[static_cast<size_t>(a)];
    const float of_b = logits_[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  };
  const auto end = ids.begin() + static_cast<ptrdiff_t>(std::min(count, ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), more_likely);
  ids.erase(end, ids.end());
  std::vector<RankedToken> top;
  top.reserve(ids.size());
  for (const Token id : ids) top.push_back({id, Of(id)});
  return top;
}

}  // namespace inferscale
