// Keeps a generation to a grammar, with libllama's own machine.
#ifndef INFERSCALE_ENGINE_LLAMA_GRAMMAR_H_
#define INFERSCALE_ENGINE_LLAMA_GRAMMAR_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/llama/handles.h"
#include "engine/llama/sampler.h"

namespace inferscale {

class Grammar {
 public:
  // `text` in GBNF, with a rule "root"; kInvalid if it is not. `vocab` must outlive it.
  static Result<Grammar> Parse(const llama_vocab* vocab, const std::string& text);

  // The sampler's choice among the tokens that may come next, and takes it; nullopt if none may.
  std::optional<Token> Choose(std::span<const float> logits, Sampler& sampler);

 private:
  explicit Grammar(LlamaSamplerPtr grammar) : grammar_(std::move(grammar)) {}

  bool Allows(Token token);
  // Minus infinity for tokens that may not come next.
  std::span<const float> Masked(std::span<const float> logits);

  LlamaSamplerPtr grammar_;
  std::vector<llama_token_data> candidates_;
  std::vector<float> masked_;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_GRAMMAR_H_
