#include "engine/llama/model_info.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

namespace inferscale {
namespace {

// An array, or the length of a period (WindowRule).
constexpr const char* kWindowPattern = "attention.sliding_window_pattern";
constexpr std::array kScalingTypes = {"none", "linear", "yarn", "longrope"};

// Scalars of a model's metadata. Keys are given without the architecture's prefix.
class Metadata {
 public:
  explicit Metadata(const llama_model* model)
      : model_(model), architecture_(Raw("general.architecture").value_or("")) {}

  const std::string& architecture() const { return architecture_; }

  std::optional<std::string> Raw(const std::string& key) const {
    std::array<char, 512> text{};
    if (llama_model_meta_val_str(model_, key.c_str(), text.data(), text.size()) < 0) return {};
    return std::string(text.data());
  }
  std::optional<std::string> String(const std::string& key) const {
    return Raw(architecture_ + "." + key);
  }
  std::optional<float> Float(const std::string& key) const {
    const auto text = String(key);
    if (!text) return {};
    return std::strtof(text->c_str(), nullptr);
  }
  std::optional<uint32_t> Count(const std::string& key) const {
    const auto text = String(key);
    if (!text) return {};
    return static_cast<uint32_t>(std::strtoul(text->c_str(), nullptr, 10));
  }

 private:
  const llama_model* model_;
  std::string architecture_;
};

Status CheckServable(const llama_model* model, const Metadata& meta, const std::string& label) {
  const auto refuse = [&](const char* what) {
    return Fail(Code::kUnsupported, "{}: architecture {} {}", label, meta.architecture(), what);
  };
  if (llama_model_is_recurrent(model)) return refuse("is recurrent: it has no KV per token");
  if (llama_model_is_hybrid(model))
    return refuse("is part recurrent: its facts can't be separated");
  if (llama_model_is_diffusion(model)) return refuse("is a diffusion model");
  if (llama_model_has_encoder(model)) return refuse("has an encoder");
  if (meta.String("attention.causal").value_or("true") == "false" ||
      meta.Count("pooling_type").value_or(0) != 0) {
    return refuse("makes embeddings and does not generate text");
  }
  switch (llama_model_rope_type(model)) {
    case LLAMA_ROPE_TYPE_NONE:
    case LLAMA_ROPE_TYPE_NORM:
    case LLAMA_ROPE_TYPE_NEOX:
      return {};
    default:
      return refuse("has several positions per token (M-RoPE)");
  }
}

RopeKind KindOf(const llama_model* model) {
  switch (llama_model_rope_type(model)) {
    case LLAMA_ROPE_TYPE_NORM:
      return RopeKind::kInterleaved;
    case LLAMA_ROPE_TYPE_NEOX:
      return RopeKind::kNeox;
    default:
      return RopeKind::kNone;
  }
}

// As llama.cpp resolves it when a context leaves everything to the model
// (llama_context's constructor, src/llama-context.cpp).
RopeSpec ResolveRope(const llama_model* model, const Metadata& meta, uint32_t head_dim) {
  RopeSpec rope;
  rope.kind = KindOf(model);
  rope.head_dim = head_dim;
  rope.rotary_dims = meta.Count("rope.dimension_count").value_or(head_dim);
  rope.freq_base = meta.Float("rope.freq_base").value_or(10000.0F);
  rope.original_context = meta.Count("rope.scaling.original_context_length")
                              .value_or(static_cast<uint32_t>(llama_model_n_ctx_train(model)));
  rope.beta_fast = meta.Float("rope.scaling.yarn_beta_fast").value_or(32.0F);
  rope.beta_slow = meta.Float("rope.scaling.yarn_beta_slow").value_or(1.0F);

  const std::string scaling = meta.String("rope.scaling.type").value_or("linear");
  rope.freq_scale = scaling == "none" ? 1.0F : llama_model_rope_freq_scale_train(model);
  rope.ext_factor = meta.Float("rope.scaling.yarn_ext_factor").value_or(-1.0F);
  if (rope.ext_factor < 0) rope.ext_factor = scaling == "yarn" ? 1.0F : 0.0F;

  float attention = meta.Float("rope.scaling.yarn_attn_factor").value_or(1.0F);
  if (rope.ext_factor != 0) {
    const float factor = 1.0F / rope.freq_scale;
    const auto mscale = [&](float weight) {
      return factor <= 1.0F ? 1.0F : 0.1F * weight * std::log(factor) + 1.0F;
    };
    const float log_multiplier = meta.Float("rope.scaling.yarn_log_multiplier").value_or(0.0F);
    attention = log_multiplier != 0 ? mscale(1.0F) / mscale(log_multiplier) : mscale(1.0F);
    attention *= 1.0F / (1.0F + 0.1F * std::log(factor));
  }
  rope.attn_factor = attention * meta.Float("rope.scaling.attn_factor").value_or(1.0F);
  return rope;
}

// How the layers of an architecture take turns where the file does not list them, and what RoPE
// those with a window have (llama.cpp: load_arch_hparams and the graphs in src/models).
struct WindowRule {
  std::string_view architecture;
  uint32_t period;  // the last layer of every period sees everything
  float freq_base;  // of the layers with a window; 0: that of the others
  bool scaled;      // they share the others' RoPE scaling
};
constexpr std::array kWindowRules = {
    WindowRule{"gemma2", 2, 0.0F, true},
    WindowRule{"gemma3", 6, 10000.0F, false},
    WindowRule{"olmo2", 4, 0.0F, false},
};

RopeSpec WindowRope(const WindowRule& rule, const Metadata& meta, const RopeSpec& full) {
  RopeSpec rope = full;
  if (rule.freq_base != 0) rope.freq_base = rule.freq_base;
  rope.freq_base = meta.Float("rope.freq_base_swa").value_or(rope.freq_base);
  rope.rotary_dims = meta.Count("rope.dimension_count_swa").value_or(rope.rotary_dims);
  if (!rule.scaled) {
    rope.freq_scale = 1.0F;
    rope.ext_factor = 0.0F;
    rope.attn_factor = 1.0F;
  }
  return rope;
}

// Which layers are in which cache, and their RoPE. Fails with why nothing can be injected.
Status FillKv(const llama_model* model, const Metadata& meta, const FileTraits& file,
              RopeSpec&& rope, ModelKv& kv) {
  kv.window = static_cast<uint32_t>(std::max(0, llama_model_n_swa(model)));
  INFERSCALE_TRY(kv.shape.Validate());
  INFERSCALE_TRY(rope.Validate());
  const uint32_t layers = kv.shape.layers;
  kv.caches.resize(kv.window > 0 ? 2 : 1);
  kv.ropes.layer_spec.assign(layers, 0);
  kv.ropes.specs.push_back(std::move(rope));
  if (kv.window == 0) {
    for (uint32_t layer = 0; layer < layers; ++layer) kv.caches[0].push_back(layer);
    return {};
  }
  const auto* rule = std::find_if(
      kWindowRules.begin(), kWindowRules.end(),
      [&](const WindowRule& candidate) { return candidate.architecture == meta.architecture(); });
  if (rule == kWindowRules.end()) {
    return Fail(Code::kUnsupported, "which layers of {} models have a sliding window is not known",
                meta.architecture());
  }
  if (!file.windowed.empty() && file.windowed.size() != layers) {
    return Fail(Code::kUnsupported, "{} tells the windows of {} layers, the model has {}",
                kWindowPattern, file.windowed.size(), layers);
  }
  const uint32_t period = std::max(1U, meta.Count(kWindowPattern).value_or(rule->period));
  kv.ropes.specs.push_back(WindowRope(*rule, meta, kv.ropes.specs.front()));
  INFERSCALE_TRY(kv.ropes.specs.back().Validate());
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const bool windowed =
        file.windowed.empty() ? layer % period != period - 1 : file.windowed[layer] != 0;
    kv.caches[windowed ? 1 : 0].push_back(layer);
    kv.ropes.layer_spec[layer] = windowed ? 1 : 0;
  }
  if (kv.caches[0].empty() || kv.caches[1].empty()) {
    return Fail(Code::kUnsupported, "all its layers have the same attention window");
  }
  return {};
}

}  // namespace

Status CheckModelFile(const ModelFile& file) {
  const std::string architecture = file.architecture();
  const auto key = [&](const char* name) { return architecture + "." + name; };
  if (architecture.empty()) {
    return Fail(Code::kInvalid, "{}: names no architecture", file.path());
  }
  if (file.Has(key("rope.scaling.type").c_str())) {
    const std::string type = file.String(key("rope.scaling.type").c_str());
    if (std::find(kScalingTypes.begin(), kScalingTypes.end(), type) == kScalingTypes.end()) {
      return Fail(Code::kUnsupported, "{}: architecture {} has RoPE scaling of type {}",
                  file.path(), architecture, type);
    }
  }
  if (!file.Uniform(key("attention.head_count_kv").c_str())) {
    return Fail(Code::kUnsupported, "{}: architecture {} has layers of different KV heads",
                file.path(), architecture);
  }
  return {};
}

Result<FileTraits> ReadFileTraits(const ModelFile& file) {
  FileTraits traits;
  INFERSCALE_ASSIGN(traits.frequency_factors, file.FloatTensor("rope_freqs.weight"));
  INFERSCALE_ASSIGN(traits.short_factors, file.FloatTensor("rope_factors_short.weight"));
  traits.windowed = file.Integers(file.architecture() + "." + kWindowPattern);
  return traits;
}

Result<LlamaModelTraits> InspectModel(const llama_model* model, const FileTraits& file,
                                      const std::string& label) {
  const Metadata meta(model);
  INFERSCALE_TRY(CheckServable(model, meta, label));

  LlamaModelTraits traits;
  traits.architecture = meta.architecture();
  traits.name = meta.Raw("general.name").value_or(meta.architecture());
  std::array<char, 256> text{};
  llama_model_desc(model, text.data(), text.size());
  traits.description = text.data();
  traits.max_context = static_cast<uint32_t>(llama_model_n_ctx_train(model));

  const auto heads = static_cast<uint32_t>(std::max(1, llama_model_n_head(model)));
  const uint32_t default_dim = static_cast<uint32_t>(llama_model_n_embd(model)) / heads;
  KvShape& shape = traits.kv.shape;
  shape = {.layers = static_cast<uint32_t>(llama_model_n_layer(model)),
           .kv_heads = static_cast<uint32_t>(llama_model_n_head_kv(model)),
           .k_dim = meta.Count("attention.key_length").value_or(default_dim),
           .v_dim = meta.Count("attention.value_length").value_or(default_dim),
           .dtype = Dtype::kF16};
  RopeSpec rope = ResolveRope(model, meta, shape.k_dim);
  rope.frequency_factors = file.frequency_factors;
  if (!file.short_factors.empty()) {
    rope.frequency_factors = file.short_factors;
    traits.max_context = std::min(traits.max_context, rope.original_context);
  }
  const Status kv = FillKv(model, meta, file, std::move(rope), traits.kv);
  if (!kv) traits.no_injection = kv.error().message;
  return traits;
}

}  // namespace inferscale
