// A generation's answer as one text, for who has no use for its pieces.
#ifndef INFERSCALE_ENGINE_READ_ANSWER_H_
#define INFERSCALE_ENGINE_READ_ANSWER_H_

#include <optional>
#include <string>

#include "engine/engine.h"

namespace inferscale {

// Blocks until the answer is complete.
inline Result<std::string> ReadAnswer(Generation& generation) {
  std::string text;
  while (true) {
    INFERSCALE_ASSIGN(const std::optional<std::string> piece, generation.Next());
    if (!piece) return text;
    text += *piece;
  }
}

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_READ_ANSWER_H_
