// How a model's chat template turns into token ids with exact seams. A prompt is the concatenation
// of
//
//   Header(system)  Text(fact 1) ... Text(fact n)  Tail(question)
//
// and a later turn of the same conversation appends
//
//   [what was generated]  MemoryBlock()  Text(new fact) ...  Tail(next question)
//
// Every part is tokenised by itself, so a part's ids never depend on its neighbours; that is what
// makes a fact's KV reusable. Text and questions are a user's: they can't become control tokens.
// A tokenizer on a server fails with the server (kTransient).
#ifndef INFERSCALE_KV_PROMPT_FORMAT_H_
#define INFERSCALE_KV_PROMPT_FORMAT_H_

#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "kv/shape.h"

namespace inferscale {

class PromptFormat {
 public:
  virtual ~PromptFormat() = default;

  // BOS if the model wants one, the template's head and the system text, up to where facts begin.
  virtual Result<std::vector<Token>> Header(std::string_view system) const = 0;
  // A fact's or any user's text with special tokens off. kInvalid if `text` is not UTF-8.
  virtual Result<std::vector<Token>> Text(std::string_view text) const = 0;
  // A text for the model to go on with, without the template: BOS if the model wants one, then
  // Text(text).
  virtual Result<std::vector<Token>> Plain(std::string_view text) const = 0;
  // Text(text) will be asked for soon: a tokenizer elsewhere may begin.
  virtual void Expect(std::string_view /*text*/) const {}
  // Ends the block of facts and opens the user's turn, the question, and opens the model's turn.
  virtual Result<std::vector<Token>> Tail(std::string_view question) const = 0;
  // Closes the model's turn and opens a further block of facts, after a generated answer. `ended`:
  // the model itself produced the end-of-turn token as its last one and it is in the cache.
  virtual std::vector<Token> MemoryBlock(bool ended) const = 0;
  // As MemoryBlock and Tail for a later turn that adds no facts.
  virtual Result<std::vector<Token>> NextTail(bool ended, std::string_view question) const = 0;

  // A text that ends the model's turn, where its vocabulary has no token for that; or empty.
  virtual std::string_view Stop() const { return {}; }

  // Of everything above but the texts: part of the fingerprint.
  virtual Hash128 Hash() const = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_KV_PROMPT_FORMAT_H_
