#include "kv/fingerprint.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace inferscale {
namespace {

FingerprintParts Parts() {
  RopeSpec rope{.kind = RopeKind::kInterleaved, .head_dim = 64, .rotary_dims = 64};
  return {.weights = {1, 2},
          .adapter = "",
          .engine = "llama",
          .chat_template = {3, 4},
          .shape = {.layers = 2, .kv_heads = 3, .k_dim = 64, .v_dim = 64, .dtype = Dtype::kF16},
          .ropes = {.specs = {rope, RopeSpec{}}, .layer_spec = {0, 1}}};
}

TEST(Fingerprint, EveryPartMatters) {
  const std::vector<std::function<void(FingerprintParts&)>> changes = {
      [](FingerprintParts&) {},
      [](FingerprintParts& p) { p.weights.low = 9; },
      [](FingerprintParts& p) { p.weights.high = 9; },
      [](FingerprintParts& p) { p.adapter += "lora"; },
      [](FingerprintParts& p) { p.adapter += "l", p.engine.erase(0, 1); },
      [](FingerprintParts& p) { p.engine += " 2"; },
      [](FingerprintParts& p) { p.chat_template.low = 9; },
      [](FingerprintParts& p) { p.shape.layers = 3; },
      [](FingerprintParts& p) { p.shape.kv_heads = 4; },
      [](FingerprintParts& p) { p.shape.k_dim = 65; },
      [](FingerprintParts& p) { p.shape.v_dim = 65; },
      [](FingerprintParts& p) { p.shape.dtype = Dtype::kBF16; },
      [](FingerprintParts& p) {
        p.ropes.layer_spec = {1, 0};
      },
      [](FingerprintParts& p) {
        p.ropes.layer_spec = {0, 0};
      },
      [](FingerprintParts& p) { p.ropes.specs[0].kind = RopeKind::kNeox; },
      [](FingerprintParts& p) { p.ropes.specs[0].rotary_dims = 32; },
      [](FingerprintParts& p) { p.ropes.specs[0].freq_base = 5e5F; },
      [](FingerprintParts& p) { p.ropes.specs[0].freq_scale = 0.5F; },
      [](FingerprintParts& p) { p.ropes.specs[0].ext_factor = 1.0F; },
      [](FingerprintParts& p) { p.ropes.specs[0].attn_factor = 2.0F; },
      [](FingerprintParts& p) { p.ropes.specs[0].beta_fast = 31.0F; },
      [](FingerprintParts& p) { p.ropes.specs[0].beta_slow = 2.0F; },
      [](FingerprintParts& p) { p.ropes.specs[0].original_context = 8192; },
      [](FingerprintParts& p) { p.ropes.specs[0].frequency_factors.assign(32, 1.0F); },
      [](FingerprintParts& p) { p.ropes.specs[0].frequency_factors.assign(32, 2.0F); },
  };
  std::set<Fingerprint> seen;
  for (const auto& change : changes) {
    FingerprintParts parts = Parts();
    change(parts);
    seen.insert(MakeFingerprint(parts));
  }
  EXPECT_EQ(seen.size(), changes.size());
  EXPECT_EQ(MakeFingerprint(Parts()), MakeFingerprint(Parts()));
}

TEST(Fingerprint, HowSpecsAreNumberedDoesNotMatter) {
  FingerprintParts parts = Parts();
  const Fingerprint before = MakeFingerprint(parts);
  std::swap(parts.ropes.specs[0], parts.ropes.specs[1]);
  parts.ropes.layer_spec = {1, 0};
  EXPECT_EQ(MakeFingerprint(parts), before);
}

// Stored KV is found again by this value: a change of it makes every store stale.
TEST(Fingerprint, IsStableAcrossBuilds) {
  EXPECT_EQ(MakeFingerprint(Parts()).Hex(), "37a7c92fc8f5dc61a8eb4705df6776f5");
}

}  // namespace
}  // namespace inferscale
