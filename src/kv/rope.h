// Rotary position encoding as the engines compute it.
//
// A pair (a, b) of a head's dims at position p becomes (a c - b s, a s + b c), with c = cos(t) m
// and s = sin(t) m. The angle t and the magnitude m come from the RopeSpec:
//
//   te = p base^(-2i / rotary_dims) / factor[i]          (extrapolated; factor = 1 unless given)
//   ti = freq_scale te                                    (interpolated)
//   t  = ti (1 - r) + te r,  r = ext_factor ramp(i)       (YaRN's mix, arXiv 2309.00071, eq. 23-25)
//   m  = attn_factor (1 + 0.1 ln(1 / freq_scale)) if ext_factor != 0, else attn_factor
//
// That is llama.cpp's rope_yarn(); linear scaling is ext_factor = 0 with freq_scale = 1/factor, and
// llama3 scaling comes as frequency factors (Llama3FrequencyFactors), LongRoPE as frequency factors
// with attn_factor.
#ifndef INFERSCALE_KV_ROPE_H_
#define INFERSCALE_KV_ROPE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "kv/rope_kind.h"

namespace inferscale {

struct RopeSpec {
  RopeKind kind = RopeKind::kNone;
  uint32_t head_dim = 0;
  uint32_t rotary_dims = 0;  // even, <= head_dim; the dims after it are not rotated
  float freq_base = 10000.0F;
  float freq_scale = 1.0F;
  float ext_factor = 0.0F;
  float attn_factor = 1.0F;
  float beta_fast = 32.0F;
  float beta_slow = 1.0F;
  uint32_t original_context = 0;              // used by YaRN only
  std::vector<float> frequency_factors = {};  // rotary_dims / 2 values, or empty

  bool operator==(const RopeSpec&) const = default;
  Status Validate() const;
  Hash128 Hash() const;
};

// Frequency factors of Llama 3.1 ("rope_type": "llama3" in a Hugging Face config).
std::vector<float> Llama3FrequencyFactors(uint32_t rotary_dims, float freq_base, float factor,
                                          float low_freq_factor, float high_freq_factor,
                                          uint32_t original_context);

// cos and sin of one RopeSpec, or as an engine has them. Positions are arguments, so one table
// serves all requests.
class RopeTable {
 public:
  // `spec` must be valid. Angles are computed as ggml does it, in float and by repeated
  // multiplication, so that the values are the engine's own to the last bit; under YaRN some are a
  // unit of the angle off where the engine was compiled to fuse its multiply-add.
  explicit RopeTable(RopeSpec spec);
  // An engine's own values: [positions][rotary_dims / 2 of cos, then of sin]. kInvalid unless there
  // is at least one position and no broken row, or for dims that Validate refuses.
  static Result<RopeTable> FromValues(RopeKind kind, uint32_t head_dim, uint32_t rotary_dims,
                                      std::vector<float> values);

  // Of a table of values only kind, head_dim and rotary_dims mean something.
  const RopeSpec& spec() const { return spec_; }
  uint32_t pairs() const { return spec_.kind == RopeKind::kNone ? 0 : spec_.rotary_dims / 2; }

  // Positions from 0 to positions() - 1 are known.
  uint32_t positions() const { return positions_; }

  // Fills `cos` and `sin` (pairs() values each) for a known position, magnitude included.
  void Fill(int32_t position, std::span<float> cos, std::span<float> sin) const;

 private:
  RopeSpec spec_;
  float theta_scale_ = 1.0F;
  float magnitude_ = 1.0F;
  std::vector<float> ramp_;    // YaRN's share of extrapolation per pair; empty without YaRN
  std::vector<float> values_;  // an engine's own; empty: computed
  uint32_t positions_ = uint32_t{1} << 31;
};

// The same in double and by pow(), straight from the formula above: the oracle of the tests.
void FillRopeReference(const RopeSpec& spec, int32_t position, std::span<double> cos,
                       std::span<double> sin);

// Which spec each layer uses. Most models have one; Gemma 3 has two, SmolLM3 has NoPE layers.
struct LayerRopes {
  std::vector<RopeSpec> specs;
  std::vector<uint8_t> layer_spec;  // index into specs, one per layer

  Status Validate(uint32_t layers) const;
  Hash128 Hash() const;
};

}  // namespace inferscale

#endif  // INFERSCALE_KV_ROPE_H_
