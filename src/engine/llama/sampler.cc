#include "engine/llama/sampler.h"

#include <algorithm>
#include <cmath>

namespace inferscale {

Status CheckSampling(const Sampling& sampling) {
  if (sampling.max_tokens == 0) return Fail(Code::kInvalid, "max_tokens must be at least 1");
  if (!(sampling.temperature >= 0 && sampling.temperature <= 100)) {
    return Fail(Code::kInvalid, "temperature must be from 0 to 100, not {}", sampling.temperature);
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    return Fail(Code::kInvalid, "top_p must be above 0 and at most 1, not {}", sampling.top_p);
  }
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) {
    return Fail(Code::kInvalid, "min_p must be from 0 to 1, not {}", sampling.min_p);
  }
  if (sampling.top_k < 0) {
    return Fail(Code::kInvalid, "top_k must not be negative, but is {}", sampling.top_k);
  }
  return {};
}

Sampler::Sampler(const Sampling& sampling)
    : temperature_(sampling.temperature),
      top_p_(sampling.top_p),
      min_p_(sampling.min_p),
      top_k_(static_cast<size_t>(sampling.top_k)),
      random_(sampling.seed) {}

Token Sampler::Sample(std::span<const float> logits) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature_ == 0) return static_cast<Token>(largest - logits.begin());

  candidates_.resize(logits.size());
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float weight = std::exp((logits[i] - *largest) / temperature_);
    candidates_[i] = {weight, static_cast<Token>(i)};
    total += double{weight};
  }
  if (top_k_ == 0 && top_p_ >= 1 && min_p_ <= 0) return Draw(candidates_, total);
  const std::span<const Candidate> kept = Filter(total);
  return Draw(kept, total);
}

std::span<const Sampler::Candidate> Sampler::Filter(double& total) {
  // Few candidates survive as a rule, so a heap that gives them one by one beats sorting them all.
  const auto less = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight < b.weight : a.token > b.token;
  };
  std::make_heap(candidates_.begin(), candidates_.end(), less);
  auto heap_end = candidates_.end();
  const auto pop = [&] {
    std::pop_heap(candidates_.begin(), heap_end, less);
    return *--heap_end;
  };
  const size_t limit = top_k_ == 0 ? candidates_.size() : std::min(top_k_, candidates_.size());
  if (top_k_ != 0) {
    total = 0;
    for (size_t i = 0; i < limit; ++i) total += double{pop().weight};
    std::reverse(heap_end, candidates_.end());
    std::rotate(candidates_.begin(), heap_end, candidates_.end());
  }

  double sum = 0;
  size_t kept = 0;
  const float floor = min_p_;  // the most likely candidate has weight 1
  if (top_k_ != 0) {
    while (kept < limit && (kept == 0 || sum < double{top_p_} * total)) {
      if (kept > 0 && candidates_[kept].weight < floor) break;
      sum += double{candidates_[kept++].weight};
    }
    total = sum;
    return std::span(candidates_).first(kept);
  }
  while (kept < limit && (kept == 0 || sum < double{top_p_} * total)) {
    if (kept > 0 && candidates_.front().weight < floor) break;
    sum += double{pop().weight};
    ++kept;
  }
  total = sum;
  std::reverse(heap_end, candidates_.end());
  return {heap_end, candidates_.end()};
}

double Sampler::Uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }

Token Sampler::Draw(std::span<const Candidate> candidates, double total) {
  double left = Uniform() * total;
  for (const Candidate& candidate : candidates) {
    left -= double{candidate.weight};
    if (left < 0) return candidate.token;
  }
  // Rounding left a rest. A token of no weight may not come.
  const auto last = std::find_if(candidates.rbegin(), candidates.rend(),
                                 [](const Candidate& one) { return one.weight > 0; });
  return last == candidates.rend() ? candidates.back().token : last->token;
}

}  // namespace inferscale
