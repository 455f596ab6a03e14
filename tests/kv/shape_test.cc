#include "kv/shape.h"

#include <gtest/gtest.h>

#include <array>

#include "kv/fact_kv.h"

namespace inferscale {
namespace {

constexpr KvShape kSmall{.layers = 3, .kv_heads = 2, .k_dim = 4, .v_dim = 6, .dtype = Dtype::kBF16};

TEST(Shape, CountsBytes) {
  EXPECT_EQ(kSmall.KRowBytes(), 2U * 4 * 2);
  EXPECT_EQ(kSmall.VRowBytes(), 2U * 6 * 2);
  EXPECT_EQ(kSmall.TokenBytes(), 3U * (16 + 24));
  const KvShape llama{
      .layers = 32, .kv_heads = 8, .k_dim = 128, .v_dim = 128, .dtype = Dtype::kF16};
  EXPECT_EQ(llama.TokenBytes(), 128U << 10);
}

TEST(Shape, SaysWhatItIs) { EXPECT_EQ(kSmall.ToString(), "3 layers x 2 heads x 4/6 bf16"); }

TEST(Shape, ValidateRefusesEachBadField) {
  EXPECT_TRUE(kSmall.Validate());
  const auto refuses = [](auto change) {
    KvShape shape = kSmall;
    change(shape);
    const Status status = shape.Validate();
    return !status && status.error().code == Code::kInvalid;
  };
  EXPECT_TRUE(refuses([](KvShape& s) { s.layers = 0; }));
  EXPECT_TRUE(refuses([](KvShape& s) { s.layers = 4097; }));
  EXPECT_TRUE(refuses([](KvShape& s) { s.kv_heads = 0; }));
  EXPECT_TRUE(refuses([](KvShape& s) { s.kv_heads = 4097; }));
  EXPECT_TRUE(refuses([](KvShape& s) { s.k_dim = 0; }));
  EXPECT_TRUE(refuses([](KvShape& s) { s.k_dim = 1025; }));
  EXPECT_TRUE(refuses([](KvShape& s) { s.v_dim = 0; }));
  EXPECT_TRUE(refuses([](KvShape& s) { s.v_dim = 1025; }));
  EXPECT_TRUE(refuses([](KvShape& s) { s.dtype = static_cast<Dtype>(5); }));
  EXPECT_FALSE(refuses([](KvShape& s) { s = {4096, 4096, 1024, 1024, Dtype::kF32}; }));
}

TEST(Shape, DtypeNamesRoundTrip) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16, Dtype::kI8, Dtype::kF8E4M3}) {
    EXPECT_EQ(ParseDtype(DtypeName(dtype)), dtype);
  }
  const Result<Dtype> bad = ParseDtype("q8_0");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::kInvalid);
  EXPECT_NE(bad.error().message.find("q8_0"), std::string::npos);
}

TEST(FactKv, LayersLieKeyThenValue) {
  std::array<std::byte, 5 * 120> bytes{};
  const MutableFactKvView kv{kSmall, 5, bytes.data()};
  EXPECT_EQ(kv.SizeBytes(), bytes.size());
  EXPECT_EQ(kv.K(0), bytes.data());
  EXPECT_EQ(kv.V(0), bytes.data() + 5 * 16);
  EXPECT_EQ(kv.K(1), bytes.data() + 5 * 40);
  EXPECT_EQ(kv.V(2) + 5 * 24, bytes.data() + bytes.size());
  const FactKvView view = kv;
  EXPECT_EQ(view.V(1), kv.V(1));
}

TEST(FactKv, ValueScalesFollowThePlanes) {
  constexpr KvShape kQuantised{
      .layers = 3, .kv_heads = 2, .k_dim = 4, .v_dim = 6, .dtype = Dtype::kI8};
  EXPECT_EQ(kQuantised.TokenBytes(), 3U * (8 + 12) + 3U * 2 * 4);
  std::array<std::byte, 5 * 84> bytes{};
  std::array<float, 3 * 2 * 4> key_scales{};
  EXPECT_EQ(kQuantised.KeyScales(), key_scales.size());
  const MutableFactKvView kv{kQuantised, 5, bytes.data(), key_scales.data()};
  EXPECT_EQ(kv.SizeBytes(), bytes.size());
  EXPECT_EQ(kv.LayerBytes(), 5U * 20);
  EXPECT_EQ(kv.V(2) + 5 * 12, kv.VScales(0));
  EXPECT_EQ(kv.VScales(1), kv.VScales(0) + 5 * 2 * 4);
  EXPECT_EQ(kv.VScales(2) + 5 * 2 * 4, bytes.data() + bytes.size());
  EXPECT_EQ(kv.KeyScales(2), key_scales.data() + 16);
  const FactKvView view = kv;
  EXPECT_EQ(view.key_scales, key_scales.data());
}

}  // namespace
}  // namespace inferscale
