// Random RoPE settings of every kind that models use.
#ifndef INFERSCALE_TESTS_KV_RANDOM_ROPE_H_
#define INFERSCALE_TESTS_KV_RANDOM_ROPE_H_

#include <algorithm>

#include "../kv/seed.h"
#include "kv/rope.h"

namespace inferscale {

inline RopeSpec RandomRope(Random& random, uint32_t head_dim) {
  RopeSpec spec;
  spec.kind = random.Pick({RopeKind::kNone, RopeKind::kNeox, RopeKind::kNeox,
                           RopeKind::kInterleaved, RopeKind::kInterleaved});
  spec.head_dim = head_dim;
  if (head_dim < 2 || spec.kind == RopeKind::kNone) return RopeSpec{.head_dim = head_dim};
  spec.rotary_dims =
      random.Chance(0.5) ? head_dim / 2 * 2 : 2 * random.Between<uint32_t>(1, head_dim / 2);
  spec.freq_base = random.Pick({1e4F, 5e5F, 1e6F, 1e5F});
  switch (random.Between(0, 4)) {
    case 0:
      break;  // plain
    case 1:   // linear
      spec.freq_scale = 1.0F / random.Between(1.0F, 8.0F);
      break;
    case 2:
      spec.frequency_factors = Llama3FrequencyFactors(spec.rotary_dims, spec.freq_base,
                                                      random.Pick({8.0F, 32.0F}), 1.0F, 4.0F, 8192);
      break;
    case 3:  // YaRN
      spec.freq_scale = 1.0F / random.Between(1.5F, 40.0F);
      spec.ext_factor = random.Chance(0.8) ? 1.0F : random.Between(0.1F, 1.0F);
      spec.attn_factor = random.Chance(0.5) ? 1.0F : random.Between(0.7F, 1.3F);
      spec.original_context = random.Pick({4096U, 8192U, 32768U});
      break;
    case 4:  // LongRoPE
      spec.attn_factor = random.Between(1.0F, 1.3F);
      for (uint32_t i = 0; i < spec.rotary_dims / 2; ++i) {
        spec.frequency_factors.push_back(random.Between(1.0F, 64.0F));
      }
      break;
  }
  return spec;
}

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_KV_RANDOM_ROPE_H_
