// Tokens to vector: what is behind an embedder.
#ifndef INFERSCALE_EMBED_TEXT_ENCODER_H_
#define INFERSCALE_EMBED_TEXT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace inferscale {

using TokenList = std::vector<int32_t>;

// Tokens that are computed together: enough to use each weight often, few enough for the L2 cache.
constexpr size_t kPackTokens = 128;

// Thread-safe.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  virtual uint32_t dims() const = 0;
  virtual size_t max_tokens() const = 0;
  // One vector per text, not normalised. Every text has 1 to max_tokens() tokens.
  virtual Result<std::vector<std::vector<float>>> Run(std::span<const TokenList> texts) = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_EMBED_TEXT_ENCODER_H_
