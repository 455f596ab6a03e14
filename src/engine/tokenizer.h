// What a prompt format needs of a model's tokenizer.
#ifndef INFERSCALE_ENGINE_TOKENIZER_H_
#define INFERSCALE_ENGINE_TOKENIZER_H_

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/shape.h"

namespace inferscale {

// Thread-safe. A tokenizer that asks a server fails with the server.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The token that a prompt begins with, or nothing if the model wants none.
  virtual std::vector<Token> Bos() const = 0;
  // A template's own strings: control tokens are recognised.
  virtual Result<std::vector<Token>> Markup(std::string_view text) const = 0;
  // A user's text. The result holds no control token, no end-of-generation token and none of
  // `reserved`, whatever the text says: where the tokenizer would give one, the text is cut inside
  // it and the parts are tokenised by themselves. kInvalid if `text` is not UTF-8.
  virtual Result<std::vector<Token>> Text(std::string_view text,
                                          std::span<const Token> reserved) const = 0;
  // Text(text) will be asked for soon: what takes a while may begin.
  virtual void Expect(std::string_view text) const = 0;
  // A token that is recognised as a whole in any text, and that is not only space.
  virtual bool IsUserDefined(Token token) const = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_TOKENIZER_H_
