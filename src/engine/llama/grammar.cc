#include "engine/llama/grammar.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace inferscale {

Result<Grammar> Grammar::Parse(const llama_vocab* vocab, const std::string& text) {
  LlamaSamplerPtr grammar(llama_sampler_init_grammar(vocab, text.c_str(), "root"));
  if (grammar == nullptr) return Fail(Code::kInvalid, "the grammar is no GBNF with a rule 'root'");
  return Grammar(std::move(grammar));
}

std::optional<Token> Grammar::Choose(std::span<const float> logits, Sampler& sampler) {
  // Looking at every token of the vocabulary takes milliseconds, and mostly the first choice will
  // do.
  Token token = sampler.Sample(logits);
  if (!Allows(token)) {
    const std::span<const float> masked = Masked(logits);
    if (std::none_of(masked.begin(), masked.end(), [](float x) { return std::isfinite(x); })) {
      return std::nullopt;
    }
    token = sampler.Sample(masked);
  }
  llama_sampler_accept(grammar_.get(), token);
  return token;
}

bool Grammar::Allows(Token token) {
  llama_token_data one{token, 0.0F, 0.0F};
  llama_token_data_array array{&one, 1, -1, false};
  llama_sampler_apply(grammar_.get(), &array);
  return std::isfinite(one.logit);
}

std::span<const float> Grammar::Masked(std::span<const float> logits) {
  candidates_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates_[i] = {static_cast<llama_token>(i), logits[i], 0.0F};
  }
  llama_token_data_array array{candidates_.data(), candidates_.size(), -1, false};
  llama_sampler_apply(grammar_.get(), &array);
  masked_.resize(logits.size());
  for (const llama_token_data& one : candidates_) masked_[static_cast<size_t>(one.id)] = one.logit;
  return masked_;
}

}  // namespace inferscale
