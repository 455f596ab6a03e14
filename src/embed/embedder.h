// Text to vector.
#ifndef INFERSCALE_EMBED_EMBEDDER_H_
#define INFERSCALE_EMBED_EMBEDDER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace inferscale {

class Embedder {
 public:
  virtual ~Embedder() = default;

  virtual uint32_t dims() const = 0;
  // Of the model: vectors of different identities can't be compared.
  virtual Hash128 identity() const = 0;
  virtual std::string name() const = 0;

  // One vector of dims() floats and length 1 per text. A text longer than the model's context is
  // cut. Thread-safe; calls take turns.
  virtual Result<std::vector<std::vector<float>>> Embed(std::span<const std::string> texts) = 0;

  // How many tokens Embed reads of a text; 0 if only a server knows.
  virtual uint32_t CountTokens(const std::string& /*text*/) const { return 0; }

  Result<std::vector<float>> EmbedOne(const std::string& text) {
    INFERSCALE_ASSIGN(auto vectors, Embed(std::span(&text, 1)));
    return std::move(vectors.front());
  }
};

}  // namespace inferscale

#endif  // INFERSCALE_EMBED_EMBEDDER_H_
