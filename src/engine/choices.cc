#include "engine/choices.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

namespace inferscale {
namespace {

using Generations = std::vector<std::unique_ptr<Generation>>;

// All at once: a server computes them side by side. The request is taken, so that no copy of it
// keeps the prompt's records pinned.
Result<Generations> StartAll(Engine& engine, GenerateRequest request, uint32_t count) {
  Generations generations;
  for (; generations.size() < count; ++request.sampling.seed) {
    INFERSCALE_ASSIGN(auto generation, engine.Start(request));
    generations.push_back(std::move(generation));
  }
  return generations;
}

// The choices from `first` on, `alike` in number.
Result<Choice> ReadChoice(Generation& generation, uint32_t first, uint32_t alike,
                          const OnPiece& on_piece) {
  Choice choice;
  bool wanted = true;
  for (bool ended = false; !ended;) {
    INFERSCALE_ASSIGN(const std::optional<std::string> text, generation.Next());
    ended = !text;
    std::vector<PlaceLogprobs> logprobs = generation.TakeLogprobs();
    if (ended && logprobs.empty()) break;
    AnswerPiece piece{first, text ? std::string_view(*text) : std::string_view(), logprobs};
    choice.text += piece.text;
    for (; wanted && on_piece && piece.choice < first + alike; ++piece.choice) {
      wanted = on_piece(piece);
    }
    std::move(logprobs.begin(), logprobs.end(), std::back_inserter(choice.logprobs));
    if (!wanted) generation.Cancel();
  }
  choice.finish = generation.finish_reason();
  return choice;
}

}  // namespace

uint32_t DistinctChoices(const Sampling& sampling, uint32_t count) {
  return sampling.temperature > 0 ? count : 1;
}

Result<Choices> GenerateChoices(Engine& engine, GenerateRequest request, uint32_t count,
                                const OnPiece& on_piece) {
  const uint32_t distinct = DistinctChoices(request.sampling, count);
  const uint32_t alike = count / distinct;
  INFERSCALE_ASSIGN(const Generations generations, StartAll(engine, std::move(request), distinct));
  Choices all;
  uint32_t generated = 0;
  for (uint32_t i = 0; i < distinct; ++i) {
    Generation& generation = *generations[i];
    INFERSCALE_ASSIGN(const Choice choice, ReadChoice(generation, i, alike, on_piece));
    all.choices.insert(all.choices.end(), alike, choice);
    const GenerateStats& stats = generation.stats();
    if (i == 0) {
      all.stats = stats;
      all.tokens = generation.tokens();
    }
    all.stats.total_ms = std::max(all.stats.total_ms, stats.total_ms);
    generated += alike * stats.generated_tokens;
    if (choice.finish == FinishReason::kCancelled) break;
  }
  if (all.choices.back().finish == FinishReason::kCancelled) {
    all.choices.resize(count);
    for (Choice& choice : all.choices) choice.finish = FinishReason::kCancelled;
  }
  all.stats.generated_tokens = generated;
  return all;
}

}  // namespace inferscale
