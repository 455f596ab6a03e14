#include "kv/key_scales.h"

#include <gtest/gtest.h>

#include <limits>

namespace inferscale {
namespace {

constexpr KvShape kShape{.layers = 1, .kv_heads = 2, .k_dim = 2, .v_dim = 3, .dtype = Dtype::kI8};

KeyScales Sample() { return {{1, 2}, kShape, {1.0F, 0.5F, 0.25F, 8.0F}}; }

TEST(KeyScales, ComeFromMaximaAndAMargin) {
  const KeyScales scales = MakeKeyScales({1, 2}, kShape, std::vector<float>{127, 0, 0, 0}, 1.5F);
  EXPECT_EQ(scales.model, (Fingerprint{1, 2}));
  EXPECT_EQ(scales.shape, kShape);
  EXPECT_EQ(scales.values, (std::vector<float>{1.5F, 1.5F, 1.0F, 1.0F}));
  KvShape f8 = kShape;
  f8.dtype = Dtype::kF8E4M3;
  EXPECT_EQ(MakeKeyScales({}, f8, std::vector<float>{448, 224, 1e-44F, 448}, 1.0F).values,
            (std::vector<float>{1.0F, 0.5F, 1.0F, 1.0F}));
}

TEST(KeyScales, RecordsDependOnModelCodecAndEveryScale) {
  const Fingerprint print = Sample().RecordFingerprint();
  EXPECT_EQ(Sample().RecordFingerprint(), print);
  const auto differs = [&](auto change) {
    KeyScales scales = Sample();
    change(scales);
    return scales.RecordFingerprint() != print;
  };
  EXPECT_NE(print, Sample().model);
  EXPECT_TRUE(differs([](KeyScales& s) { s.model.low = 3; }));
  EXPECT_TRUE(differs([](KeyScales& s) { s.shape.dtype = Dtype::kF8E4M3; }));
  EXPECT_TRUE(differs([](KeyScales& s) { s.values[3] = 8.000001F; }));
}

TEST(KeyScales, ComeBackFromAFile) {
  const std::vector<std::byte> bytes = EncodeKeyScales(Sample());
  EXPECT_EQ(bytes.size(), 8U + 16 + 16 + 4 * 4 + 4);
  const auto back = ParseKeyScales(bytes);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->model, Sample().model);
  EXPECT_EQ(back->shape, kShape);
  EXPECT_EQ(back->values, Sample().values);
}

TEST(KeyScales, DamageIsNoticed) {
  const std::vector<std::byte> bytes = EncodeKeyScales(Sample());
  const auto corrupt = [](ByteSpan file) {
    const auto parsed = ParseKeyScales(file);
    return !parsed && parsed.error().code == Code::kCorrupt;
  };
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(corrupt(ByteSpan(bytes).first(size)));
  }
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::vector<std::byte> flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_TRUE(corrupt(flipped)) << bit;
  }
}

// Sound checksums over contents that must not be used.
TEST(KeyScales, NonsenseIsRefused) {
  const auto refuses = [](auto change) {
    KeyScales scales = Sample();
    change(scales);
    return !ParseKeyScales(EncodeKeyScales(scales));
  };
  EXPECT_FALSE(refuses([](KeyScales&) {}));
  EXPECT_TRUE(refuses([](KeyScales& s) { s.shape.dtype = Dtype::kF16; }));
  EXPECT_TRUE(refuses([](KeyScales& s) { s.shape.layers = 0; }));
  EXPECT_TRUE(refuses([](KeyScales& s) { s.shape.k_dim = 1024, s.shape.kv_heads = 4096; }));
  EXPECT_TRUE(refuses([](KeyScales& s) { s.values.pop_back(); }));
  EXPECT_TRUE(refuses([](KeyScales& s) { s.values[1] = 0; }));
  EXPECT_TRUE(refuses([](KeyScales& s) { s.values[1] = -1; }));
  EXPECT_TRUE(refuses([](KeyScales& s) { s.values[1] = std::numeric_limits<float>::infinity(); }));
}

}  // namespace
}  // namespace inferscale
