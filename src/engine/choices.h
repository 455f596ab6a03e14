// Several answers to one prompt.
#ifndef INFERSCALE_ENGINE_CHOICES_H_
#define INFERSCALE_ENGINE_CHOICES_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace inferscale {

struct Choice {
  std::string text;
  FinishReason finish = FinishReason::kStop;
  std::vector<PlaceLogprobs> logprobs{};  // if they were asked for
};

struct AnswerPiece {
  uint32_t choice = 0;
  std::string_view text;  // empty if there are only the last logprobs
  std::span<const PlaceLogprobs> logprobs{};
};
// Called with each piece as it comes; false cancels all choices.
using OnPiece = std::function<bool(const AnswerPiece&)>;

struct Choices {
  std::vector<Choice> choices;
  GenerateStats stats;        // the first's, but generated_tokens is the sum
  std::vector<Token> tokens;  // that the first generated
};

// How many of `count` answers have to be computed: without a temperature they are all alike.
uint32_t DistinctChoices(const Sampling& sampling, uint32_t count);

// Blocks until all are complete or, if one is, cancelled. `count` is at least 1. Choice i has the
// seed of the request plus i. Their pieces come in the order of the choices. If several have to be
// computed, a session of their own spares reading the prompt again for each.
Result<Choices> GenerateChoices(Engine& engine, GenerateRequest request, uint32_t count,
                                const OnPiece& on_piece);

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_CHOICES_H_
