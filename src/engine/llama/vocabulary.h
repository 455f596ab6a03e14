// Text to token ids and back, with a model's own tokenizer.
#ifndef INFERSCALE_ENGINE_LLAMA_VOCABULARY_H_
#define INFERSCALE_ENGINE_LLAMA_VOCABULARY_H_

#include <llama.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer.h"
#include "kv/shape.h"

namespace inferscale {

// Thread-safe. The model must outlive it.
class Vocabulary final : public Tokenizer {
 public:
  explicit Vocabulary(const llama_model* model);

  uint32_t size() const { return static_cast<uint32_t>(llama_vocab_n_tokens(vocab_)); }
  bool Contains(Token token) const { return token >= 0 && static_cast<uint32_t>(token) < size(); }
  bool EndsGeneration(Token token) const { return llama_vocab_is_eog(vocab_, token); }
  bool IsUserDefined(Token token) const override;
  std::vector<Token> Bos() const override;
  Result<std::vector<Token>> Markup(std::string_view text) const override;
  Result<std::vector<Token>> Text(std::string_view text,
                                  std::span<const Token> reserved) const override;
  void Expect(std::string_view /*text*/) const override {}

  // Bytes of a token; may end inside a character. Control tokens give nothing, unless `special`.
  std::string Piece(Token token, bool special = false) const;

 private:
  std::vector<Token> Tokenize(std::string_view text, bool special) const;
  void AppendText(std::string_view text, std::span<const Token> reserved,
                  std::vector<Token>& out) const;

  const llama_vocab* vocab_;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_VOCABULARY_H_
