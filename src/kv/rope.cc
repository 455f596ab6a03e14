#include "kv/rope.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <numbers>
#include <utility>

namespace inferscale {

namespace {

constexpr uint32_t kMaxHeadDim = 1024;
constexpr float kPi = std::numbers::pi_v<float>;

bool IsPositive(float value) { return std::isfinite(value) && value > 0.0F; }

Status CheckPositive(const char* what, float value) {
  if (IsPositive(value)) return {};
  return Fail(Code::kInvalid, "RoPE: {} is {}, not a positive number", what, value);
}

// The dim whose angle makes `rotations` turns within the original context.
float CorrectionDim(const RopeSpec& spec, float rotations) {
  return static_cast<float>(spec.rotary_dims) *
         std::log(static_cast<float>(spec.original_context) / (rotations * 2 * kPi)) /
         (2 * std::log(spec.freq_base));
}

std::vector<float> YarnRamp(const RopeSpec& spec) {
  const float low = std::max(0.0F, std::floor(CorrectionDim(spec, spec.beta_fast)));
  const float high = std::min(static_cast<float>(spec.rotary_dims - 1),
                              std::ceil(CorrectionDim(spec, spec.beta_slow)));
  std::vector<float> ramp(spec.rotary_dims / 2);
  for (size_t i = 0; i < ramp.size(); ++i) {
    const float y = (static_cast<float>(i) - low) / std::max(0.001F, high - low);
    ramp[i] = (1.0F - std::min(1.0F, std::max(0.0F, y))) * spec.ext_factor;
  }
  return ramp;
}

void AddFloat(Hasher& hasher, float value) { hasher.Add(uint64_t{std::bit_cast<uint32_t>(value)}); }

}  // namespace

Status RopeSpec::Validate() const {
  if (kind > RopeKind::kInterleaved) {
    return Fail(Code::kInvalid, "RoPE: there is no kind {}", static_cast<int>(kind));
  }
  if (kind == RopeKind::kNone) return {};
  if (head_dim < 1 || head_dim > kMaxHeadDim) {
    return Fail(Code::kInvalid, "RoPE: head_dim is {}, not 1 to {}", head_dim, kMaxHeadDim);
  }
  if (rotary_dims < 2 || rotary_dims % 2 != 0 || rotary_dims > head_dim) {
    return Fail(Code::kInvalid, "RoPE: rotary_dims is {}, not even and 2 to {}", rotary_dims,
                head_dim);
  }
  INFERSCALE_TRY(CheckPositive("freq_base", freq_base));
  INFERSCALE_TRY(CheckPositive("freq_scale", freq_scale));
  INFERSCALE_TRY(CheckPositive("attn_factor", attn_factor));
  if (!std::isfinite(ext_factor) || ext_factor < 0.0F || ext_factor > 1.0F) {
    return Fail(Code::kInvalid, "RoPE: ext_factor is {}, not 0 to 1", ext_factor);
  }
  if (ext_factor != 0.0F) {
    INFERSCALE_TRY(CheckPositive("beta_fast", beta_fast));
    INFERSCALE_TRY(CheckPositive("beta_slow", beta_slow));
    if (original_context == 0) return Fail(Code::kInvalid, "RoPE: YaRN needs original_context");
    // log(freq_base) divides in the ramp, and YaRN's magnitude must stay positive.
    if (freq_base <= 1.0F) {
      return Fail(Code::kInvalid, "RoPE: YaRN needs a freq_base above 1, not {}", freq_base);
    }
    if (1.0F + 0.1F * std::log(1.0F / freq_scale) <= 0.0F) {
      return Fail(Code::kInvalid, "RoPE: YaRN's magnitude is not positive at freq_scale {}",
                  freq_scale);
    }
  }
  if (!frequency_factors.empty() && frequency_factors.size() != rotary_dims / 2) {
    return Fail(Code::kInvalid, "RoPE: {} frequency factors for {} pairs", frequency_factors.size(),
                rotary_dims / 2);
  }
  for (const float factor : frequency_factors) {
    INFERSCALE_TRY(CheckPositive("a frequency factor", factor));
  }
  return {};
}

Hash128 RopeSpec::Hash() const {
  Hasher hasher;
  hasher.Add("rope").Add(uint64_t{static_cast<uint8_t>(kind)});
  hasher.Add(uint64_t{head_dim}).Add(uint64_t{rotary_dims}).Add(uint64_t{original_context});
  for (const float value : {freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow}) {
    AddFloat(hasher, value);
  }
  hasher.Add(uint64_t{frequency_factors.size()});
  for (const float factor : frequency_factors) AddFloat(hasher, factor);
  return hasher.Digest();
}

std::vector<float> Llama3FrequencyFactors(uint32_t rotary_dims, float freq_base, float factor,
                                          float low_freq_factor, float high_freq_factor,
                                          uint32_t original_context) {
  std::vector<float> factors(rotary_dims / 2);
  for (size_t i = 0; i < factors.size(); ++i) {
    const double wavelength =
        2 * std::numbers::pi *
        std::pow(double{freq_base}, 2.0 * static_cast<double>(i) / rotary_dims);
    // How often the pair turns within the original context: often means it is left alone, seldom
    // means it is slowed down by the whole factor.
    const double turns = original_context / wavelength;
    const double keep = std::clamp(
        (turns - low_freq_factor) / (double{high_freq_factor} - low_freq_factor), 0.0, 1.0);
    factors[i] = static_cast<float>(1.0 / ((1.0 - keep) / factor + keep));
  }
  return factors;
}

RopeTable::RopeTable(RopeSpec spec) : spec_(std::move(spec)) {
  assert(spec_.Validate());
  if (spec_.kind == RopeKind::kNone) return;
  theta_scale_ = std::pow(spec_.freq_base, -2.0F / static_cast<float>(spec_.rotary_dims));
  magnitude_ = spec_.attn_factor;
  if (spec_.ext_factor != 0.0F) {
    ramp_ = YarnRamp(spec_);
    magnitude_ *= 1.0F + 0.1F * std::log(1.0F / spec_.freq_scale);
  }
}

Result<RopeTable> RopeTable::FromValues(RopeKind kind, uint32_t head_dim, uint32_t rotary_dims,
                                        std::vector<float> values) {
  RopeSpec spec{.kind = kind, .head_dim = head_dim, .rotary_dims = rotary_dims};
  INFERSCALE_TRY(spec.Validate());
  const size_t positions = kind == RopeKind::kNone ? 0 : values.size() / rotary_dims;
  if (positions == 0 || values.size() != positions * rotary_dims || positions > (size_t{1} << 31)) {
    return Fail(Code::kInvalid, "RoPE: a table of {} values for {} dims", values.size(),
                rotary_dims);
  }
  RopeTable table(std::move(spec));
  table.values_ = std::move(values);
  table.positions_ = static_cast<uint32_t>(positions);
  return table;
}

void RopeTable::Fill(int32_t position, std::span<float> cos, std::span<float> sin) const {
  assert(position >= 0 && static_cast<uint32_t>(position) < positions_);
  assert(cos.size() == pairs() && sin.size() == pairs());
  if (!values_.empty()) {
    const float* row = values_.data() + static_cast<size_t>(position) * spec_.rotary_dims;
    std::copy_n(row, pairs(), cos.begin());
    std::copy_n(row + pairs(), pairs(), sin.begin());
    return;
  }
  const bool has_factors = !spec_.frequency_factors.empty();
  auto theta = static_cast<float>(position);
  for (size_t i = 0; i < pairs(); ++i) {
    const float extrapolated = has_factors ? theta / spec_.frequency_factors[i] : theta;
    float angle = spec_.freq_scale * extrapolated;
    if (!ramp_.empty()) angle = angle * (1.0F - ramp_[i]) + extrapolated * ramp_[i];
    cos[i] = std::cos(angle) * magnitude_;
    sin[i] = std::sin(angle) * magnitude_;
    theta *= theta_scale_;
  }
}

void FillRopeReference(const RopeSpec& spec, int32_t position, std::span<double> cos,
                       std::span<double> sin) {
  if (spec.kind == RopeKind::kNone) return;
  const double dims = spec.rotary_dims;
  const auto correction = [&](double rotations) {
    return dims * std::log(spec.original_context / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(double{spec.freq_base}));
  };
  double magnitude = spec.attn_factor;
  if (spec.ext_factor != 0) magnitude *= 1 + 0.1 * std::log(1 / double{spec.freq_scale});
  for (size_t i = 0; i < spec.rotary_dims / 2; ++i) {
    const double factor = spec.frequency_factors.empty() ? 1.0 : spec.frequency_factors[i];
    const double extrapolated =
        position * std::pow(double{spec.freq_base}, -2.0 * static_cast<double>(i) / dims) / factor;
    const double interpolated = spec.freq_scale * extrapolated;
    double share = 0;
    if (spec.ext_factor != 0) {
      const double low = std::max(0.0, std::floor(correction(spec.beta_fast)));
      const double high = std::min(dims - 1, std::ceil(correction(spec.beta_slow)));
      const double y = (static_cast<double>(i) - low) / std::max(0.001, high - low);
      share = (1 - std::clamp(y, 0.0, 1.0)) * spec.ext_factor;
    }
    const double angle = interpolated * (1 - share) + extrapolated * share;
    cos[i] = std::cos(angle) * magnitude;
    sin[i] = std::sin(angle) * magnitude;
  }
}

Status LayerRopes::Validate(uint32_t layers) const {
  if (layer_spec.size() != layers) {
    return Fail(Code::kInvalid, "RoPE: {} layers are described, the model has {}",
                layer_spec.size(), layers);
  }
  for (const RopeSpec& spec : specs) INFERSCALE_TRY(spec.Validate());
  for (size_t layer = 0; layer < layer_spec.size(); ++layer) {
    if (layer_spec[layer] >= specs.size()) {
      return Fail(Code::kInvalid, "RoPE: layer {} uses spec {} of {}", layer, layer_spec[layer],
                  specs.size());
    }
  }
  return {};
}

Hash128 LayerRopes::Hash() const {
  Hasher hasher;
  hasher.Add("layer ropes").Add(uint64_t{layer_spec.size()});
  // By what each layer gets, so that an unused spec or another numbering is the same model.
  for (const uint8_t index : layer_spec) hasher.Add(specs.at(index).Hash());
  return hasher.Digest();
}

}  // namespace inferscale
