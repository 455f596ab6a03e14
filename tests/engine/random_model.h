// Small models with random weights, made in memory: every RoPE variant without a download.
#ifndef INFERSCALE_TESTS_ENGINE_RANDOM_MODEL_H_
#define INFERSCALE_TESTS_ENGINE_RANDOM_MODEL_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/llama/llama_engine.h"

namespace inferscale {

struct RandomModelSpec {
  std::string architecture = "llama";
  uint32_t layers = 4;
  uint32_t head_dim = 64;
  uint32_t rotary_dims = 64;
  float freq_base = 10000.0F;
  std::string scaling{};  // rope.scaling.type, empty for none
  float factor = 1.0F;
  uint32_t original_context = 1024;
  uint32_t window = 0;            // sliding attention
  float window_freq_base = 0.0F;  // of its layers; 0: the architecture's
};

constexpr uint32_t kRandomVocabulary = 256;
constexpr uint32_t kRandomContext = 2048;

// Fails the test (and gives a null model) if libllama refuses it.
LoadedLlamaModel MakeRandomModel(const RandomModelSpec& spec);

// An engine over such a model: one thread, a short queue.
std::unique_ptr<Engine> MakeRandomEngine(const RandomModelSpec& spec = {},
                                         LlamaEngineOptions options = {});

std::vector<Token> RandomTokens(std::mt19937& random, size_t count,
                                uint32_t vocabulary = kRandomVocabulary);

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_ENGINE_RANDOM_MODEL_H_
