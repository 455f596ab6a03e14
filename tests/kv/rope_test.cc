#include "kv/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "random_rope.h"
#include "seed.h"

namespace inferscale {
namespace {

struct Table {
  std::vector<float> cos, sin;
};

Table Fill(const RopeSpec& spec, int32_t position) {
  const RopeTable table(spec);
  Table out{std::vector<float>(table.pairs()), std::vector<float>(table.pairs())};
  table.Fill(position, out.cos, out.sin);
  return out;
}

TEST(Rope, PlainKnownAnswers) {
  const Table table =
      Fill({.kind = RopeKind::kNeox, .head_dim = 8, .rotary_dims = 8, .freq_base = 10000}, 7);
  const std::array cos = {0.7539022543433046, 0.7648421872844884, 0.9975510002532796,
                          0.9999755001000415};
  const std::array sin = {0.6569865987187891, 0.6442176872376911, 0.06994284733753277,
                          0.006999942833473391};
  ASSERT_EQ(table.cos.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(table.cos[i], cos[i], 2e-7) << i;
    EXPECT_NEAR(table.sin[i], sin[i], 2e-7) << i;
  }
}

// Llama 3.1: factor 8, low 1, high 4, original context 8192.
TEST(Rope, Llama3FrequencyFactorsKnownAnswers) {
  const std::vector<float> factors = Llama3FrequencyFactors(128, 5e5F, 8, 1, 4, 8192);
  ASSERT_EQ(factors.size(), 64U);
  EXPECT_EQ(factors[0], 1.0F);
  EXPECT_EQ(factors[28], 1.0F);
  EXPECT_NEAR(factors[29], 1.207483871283662, 1e-6);
  EXPECT_NEAR(factors[31], 2.0263132059050553, 1e-6);
  EXPECT_NEAR(factors[34], 5.257326588708467, 2e-6);
  EXPECT_EQ(factors[35], 8.0F);
  EXPECT_EQ(factors[63], 8.0F);
}

// YaRN as Qwen uses it: factor 4 over 32768, base 1e6, at position 100.
TEST(Rope, YarnKnownAnswers) {
  const Table table = Fill({.kind = RopeKind::kNeox,
                            .head_dim = 128,
                            .rotary_dims = 128,
                            .freq_base = 1e6F,
                            .freq_scale = 0.25F,
                            .ext_factor = 1.0F,
                            .original_context = 32768},
                           100);
  const struct {
    size_t pair;
    double cos, sin;
  } answers[] = {{0, 0.9818616513016518, -0.5765628244032905},
                 {20, 0.26764025603662156, 1.106727466962557},
                 {24, 0.978054082350663, 0.5829984603563794},
                 {35, 1.138284202879198, 0.0280368731561723},
                 {40, 1.1386181840604308, 0.00506198653033479},
                 {63, 1.1386294355640498, 3.53242065637038e-05}};
  for (const auto& [pair, cos, sin] : answers) {
    EXPECT_NEAR(table.cos[pair], cos, 1e-5) << pair;
    EXPECT_NEAR(table.sin[pair], sin, 1e-5) << pair;
  }
}

TEST(Rope, NoneHasNoPairs) {
  EXPECT_EQ(RopeTable(RopeSpec{.head_dim = 64, .rotary_dims = 64}).pairs(), 0U);
}

TEST(Rope, RandomSpecsFollowTheFormula) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 2000; ++round) {
    const RopeSpec spec = RandomRope(random, random.Between<uint32_t>(1, 256));
    ASSERT_TRUE(spec.Validate());
    const int32_t position = random.Chance(0.1) ? 0 : random.Between(1, 131072);
    const Table table = Fill(spec, position);
    std::vector<double> cos(table.cos.size()), sin(table.cos.size());
    FillRopeReference(spec, position, cos, sin);
    double magnitude = 1;
    for (size_t i = 0; i < cos.size(); ++i) {
      magnitude = std::hypot(cos[i], sin[i]);
      // The angle comes from i multiplications in float, each off by half a unit; so its error
      // grows with the angle. No more than position * base^(-2i/n) * i units can be lost.
      const double angle =
          position * std::pow(spec.freq_base, -2.0 * static_cast<double>(i) / spec.rotary_dims);
      const double tolerance = magnitude * std::numeric_limits<float>::epsilon() *
                               (4 + angle * (4 + static_cast<double>(i)));
      ASSERT_NEAR(table.cos[i], cos[i], tolerance) << "round " << round << " pair " << i;
      ASSERT_NEAR(table.sin[i], sin[i], tolerance) << "round " << round << " pair " << i;
    }
  }
}

TEST(Rope, AnEnginesValuesAreTakenAsTheyAre) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 50; ++round) {
    const auto pairs = random.Between<uint32_t>(1, 64);
    const auto positions = random.Between<uint32_t>(1, 50);
    std::vector<float> values(size_t{positions} * 2 * pairs);
    for (float& value : values) value = random.Normal();
    const RopeKind kind = random.Pick({RopeKind::kNeox, RopeKind::kInterleaved});
    const auto table = RopeTable::FromValues(kind, 128, 2 * pairs, values);
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ(table->spec().kind, kind);
    EXPECT_EQ(table->positions(), positions);
    ASSERT_EQ(table->pairs(), pairs);
    std::vector<float> row(2 * size_t{pairs});
    for (uint32_t p = 0; p < positions; ++p) {
      table->Fill(static_cast<int32_t>(p), {row.data(), pairs}, {row.data() + pairs, pairs});
      ASSERT_TRUE(std::equal(row.begin(), row.end(), values.data() + p * row.size())) << p;
    }
  }
  EXPECT_EQ(RopeTable(RopeSpec{}).positions(), uint32_t{1} << 31);
}

TEST(Rope, BrokenTablesOfValuesAreRefused) {
  const auto refuses = [](RopeKind kind, uint32_t dims, size_t values) {
    const auto table = RopeTable::FromValues(kind, 64, dims, std::vector<float>(values));
    return !table && table.error().code == Code::kInvalid;
  };
  EXPECT_FALSE(refuses(RopeKind::kNeox, 64, 128));
  EXPECT_TRUE(refuses(RopeKind::kNeox, 64, 0));
  EXPECT_TRUE(refuses(RopeKind::kNeox, 64, 127));
  EXPECT_TRUE(refuses(RopeKind::kNeox, 63, 126));
  EXPECT_TRUE(refuses(RopeKind::kNeox, 66, 132));
  EXPECT_TRUE(refuses(RopeKind::kNeox, 0, 64));
  EXPECT_TRUE(refuses(RopeKind::kNone, 64, 64));
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Rope, ValidateRefusesEachBadField) {
  const RopeSpec good{.kind = RopeKind::kNeox,
                      .head_dim = 64,
                      .rotary_dims = 64,
                      .freq_scale = 0.25F,
                      .ext_factor = 1.0F,
                      .original_context = 4096,
                      .frequency_factors = std::vector<float>(32, 2.0F)};
  ASSERT_TRUE(good.Validate());
  const auto refuses = [&](auto change) {
    RopeSpec spec = good;
    change(spec);
    const Status status = spec.Validate();
    return !status && status.error().code == Code::kInvalid;
  };
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.kind = static_cast<RopeKind>(3); }));
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.head_dim = 0; }));
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.head_dim = 1025; }));
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.rotary_dims = 0; }));
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.rotary_dims = 63; }));
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.rotary_dims = 66; }));
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.original_context = 0; }));
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.freq_base = 1.0F; }));
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.ext_factor = -1.0F; }));
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.ext_factor = kNan; }));
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.freq_scale = 1e6F; }));
  EXPECT_TRUE(refuses([](RopeSpec& s) { s.frequency_factors.pop_back(); }));
  for (const float bad : {0.0F, -1.0F, kNan, kInfinity}) {
    EXPECT_TRUE(refuses([&](RopeSpec& s) { s.freq_base = bad; })) << bad;
    EXPECT_TRUE(refuses([&](RopeSpec& s) { s.freq_scale = bad; })) << bad;
    EXPECT_TRUE(refuses([&](RopeSpec& s) { s.attn_factor = bad; })) << bad;
    EXPECT_TRUE(refuses([&](RopeSpec& s) { s.beta_fast = bad; })) << bad;
    EXPECT_TRUE(refuses([&](RopeSpec& s) { s.beta_slow = bad; })) << bad;
    EXPECT_TRUE(refuses([&](RopeSpec& s) { s.frequency_factors[31] = bad; })) << bad;
  }
  EXPECT_TRUE(RopeSpec{}.Validate());
}

TEST(LayerRopes, ValidateRefusesWrongCountsAndIndices) {
  const RopeSpec rope{.kind = RopeKind::kNeox, .head_dim = 64, .rotary_dims = 64};
  LayerRopes ropes{.specs = {rope, RopeSpec{}}, .layer_spec = {0, 1, 0}};
  EXPECT_TRUE(ropes.Validate(3));
  EXPECT_FALSE(ropes.Validate(2));
  EXPECT_FALSE(ropes.Validate(4));
  ropes.layer_spec[1] = 2;
  EXPECT_FALSE(ropes.Validate(3));
  ropes.layer_spec[1] = 1;
  ropes.specs[1] = {.kind = RopeKind::kNeox, .head_dim = 64, .rotary_dims = 65};
  EXPECT_FALSE(ropes.Validate(3));
}

}  // namespace
}  // namespace inferscale
