#include "random_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/llama_runtime.h"

namespace inferscale {
namespace {

float FrequencyFactor(size_t i) { return 1.0F + static_cast<float>(i % 4); }

void FillTensor(ggml_tensor* tensor, void*) {
  const std::string_view name = tensor->name;
  const bool norm = name.find("norm") != std::string_view::npos;
  const bool factors = name.find("rope_freqs") != std::string_view::npos ||
                       name.find("rope_factors_short") != std::string_view::npos;
  uint32_t state = static_cast<uint32_t>(HashBytes(AsBytes(name)).low) | 1U;
  std::vector<float> values(static_cast<size_t>(ggml_nelements(tensor)));
  const float scale = 3.4F / std::sqrt(static_cast<float>(tensor->ne[0]));
  for (size_t i = 0; i < values.size(); ++i) {
    state = state * 1664525U + 1013904223U;
    const float uniform = static_cast<float>(state >> 8) / 16777216.0F - 0.5F;
    values[i] = factors ? FrequencyFactor(i) : norm ? 1.0F + 0.1F * uniform : uniform * scale;
  }
  ASSERT_EQ(tensor->type, GGML_TYPE_F32);
  ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
}

GgufPtr Metadata(const RandomModelSpec& spec) {
  GgufPtr gguf(gguf_init_empty());
  const auto key = [&](const char* name) { return spec.architecture + "." + name; };
  const auto count = [&](const char* name, uint32_t value) {
    gguf_set_val_u32(gguf.get(), key(name).c_str(), value);
  };
  const auto number = [&](const char* name, float value) {
    gguf_set_val_f32(gguf.get(), key(name).c_str(), value);
  };
  gguf_set_val_str(gguf.get(), "general.architecture", spec.architecture.c_str());
  gguf_set_val_str(gguf.get(), "tokenizer.ggml.model", "no_vocab");
  // Any known template does: without a vocabulary its strings give no tokens.
  gguf_set_val_str(gguf.get(), "tokenizer.chat_template", "[INST]");
  count("vocab_size", kRandomVocabulary);
  count("context_length", kRandomContext);
  count("embedding_length", 4 * spec.head_dim);
  count("block_count", spec.layers);
  count("feed_forward_length", 256);
  count("attention.head_count", 4);
  count("attention.head_count_kv", 2);
  count("attention.key_length", spec.head_dim);
  count("attention.value_length", spec.head_dim);
  number("attention.layer_norm_rms_epsilon", 1e-5F);
  number("attention.layer_norm_epsilon", 1e-5F);
  if (spec.architecture == "cohere2") number("logit_scale", 1.0F);
  count("rope.dimension_count", spec.rotary_dims);
  number("rope.freq_base", spec.freq_base);
  if (!spec.scaling.empty()) {
    gguf_set_val_str(gguf.get(), key("rope.scaling.type").c_str(), spec.scaling.c_str());
    number("rope.scaling.factor", spec.factor);
    count("rope.scaling.original_context_length", spec.original_context);
  }
  if (spec.window > 0) count("attention.sliding_window", spec.window);
  if (spec.window_freq_base > 0) number("rope.freq_base_swa", spec.window_freq_base);
  return gguf;
}

}  // namespace

LoadedLlamaModel MakeRandomModel(const RandomModelSpec& spec) {
  InitLlamaRuntime();
  llama_model_params params = llama_model_default_params();
  params.progress_callback = [](float, void*) { return true; };
  ggml_backend_dev_t no_devices[] = {nullptr};
  params.devices = no_devices;
  LoadedLlamaModel loaded;
  loaded.label = "random " + spec.architecture;
  loaded.weights = HashBytes(AsBytes(spec.architecture));
  loaded.model.reset(llama_model_init_from_user(Metadata(spec).get(), FillTensor, nullptr, params));
  EXPECT_NE(loaded.model, nullptr) << TakeLlamaError();
  // libllama adds these tensors to the models that may have them and lets FillTensor set them.
  std::vector<float> factors;
  for (size_t i = 0; i < spec.rotary_dims / 2; ++i) factors.push_back(FrequencyFactor(i));
  if (spec.architecture == "llama") loaded.file.frequency_factors = factors;
  if (spec.architecture == "phi3") loaded.file.short_factors = factors;
  return loaded;
}

std::unique_ptr<Engine> MakeRandomEngine(const RandomModelSpec& spec, LlamaEngineOptions options) {
  options.threads = 1;
  options.queue_limit = 8;
  auto engine = MakeLlamaEngine(MakeRandomModel(spec), options);
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
    return nullptr;
  }
  return std::move(*engine);
}

std::vector<Token> RandomTokens(std::mt19937& random, size_t count, uint32_t vocabulary) {
  std::uniform_int_distribution<Token> token(0, static_cast<Token>(vocabulary) - 1);
  std::vector<Token> tokens(count);
  for (Token& value : tokens) value = token(random);
  return tokens;
}

}  // namespace inferscale
