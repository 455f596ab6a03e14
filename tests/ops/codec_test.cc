#include "ops/codec/codec.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kv/element_bits.h"
#include "ops/element.h"
#include "transfer_case.h"

namespace inferscale {
namespace {

using Bytes = std::vector<std::byte>;

constexpr Dtype kPlain[] = {Dtype::kF32, Dtype::kF16, Dtype::kBF16};
constexpr Dtype kQuantised[] = {Dtype::kI8, Dtype::kF8E4M3};

// A record with key scales that fit most of it.
struct CodecCase {
  CodecCase(Random& random, Dtype from, Dtype to, Values values)
      : shape{.layers = random.Between<uint32_t>(1, 3),
              .kv_heads = random.Between<uint32_t>(1, 4),
              .k_dim = random.Between<uint32_t>(1, 70),
              .v_dim = random.Between<uint32_t>(1, 70),
              .dtype = from},
        quantised(shape),
        tokens(random.Between<uint32_t>(1, 9)),
        record(tokens * shape.TokenBytes()),
        scales(shape.KeyScales()) {
    quantised.dtype = to;
    const float limit = to == Dtype::kI8 ? kI8Max : kF8Max;
    for (float& scale : scales) {
      scale = random.Chance(0.02) ? 0.0F : random.Between(1.5F, 4.0F) / limit;
    }
    for (size_t i = 0; i < record.size() / DtypeSize(from); ++i) {
      double value = random.Normal() * (random.Chance(0.03) ? 20 : 1);
      if (values == Values::kHard && random.Chance(0.03)) {
        value = random.Pick({0.0, -0.0, HUGE_VAL, -HUGE_VAL, std::nan(""), 1e30, 6e-8, 1e-44});
      }
      WriteElement(record.data(), from, i, value);
    }
    // Rows without a scale.
    if (random.Chance(0.3)) std::fill_n(Plain().V(0), shape.VRowBytes(), std::byte{0});
  }

  MutableFactKvView Plain() { return {shape, tokens, record.data()}; }
  MutableFactKvView Into(Bytes& bytes) const {
    bytes.assign(tokens * quantised.TokenBytes(), std::byte{0xA5});
    return {quantised, tokens, bytes.data(), scales.data()};
  }
  MutableFactKvView Back(Bytes& bytes) const {
    bytes.assign(record.size(), std::byte{0xA5});
    return {shape, tokens, bytes.data()};
  }
  std::string Describe() const {
    return fmt::format("{} tokens of {} as {}", tokens, shape.ToString(),
                       DtypeName(quantised.dtype));
  }

  KvShape shape, quantised;
  uint32_t tokens;
  Bytes record;
  std::vector<float> scales;
};

// Fails unless both hold the same elements; any NaN is as good as another.
void ExpectSame(const FactKvView& got, const FactKvView& want) {
  const size_t size = DtypeSize(got.shape.dtype);
  for (size_t i = 0; i < got.SizeBytes() / size; ++i) {
    if (std::memcmp(got.data + i * size, want.data + i * size, size) == 0) continue;
    const double a = ReadElement(got.data, got.shape.dtype, i);
    const double b = ReadElement(want.data, got.shape.dtype, i);
    ASSERT_TRUE(std::isnan(a) && std::isnan(b)) << "element " << i << " is " << a << ", not " << b;
  }
}

TEST(Codec, EqualsTheReferenceByteByByteOnEverySimdTarget) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  uint64_t clamped = 0;
  for (int round = 0; round < 300; ++round) {
    CodecCase test(random, kPlain[round % 3], kQuantised[round / 3 % 2], Values::kHard);
    SCOPED_TRACE(test.Describe());
    Bytes want, got, want_back, got_back;
    const auto reference = QuantiseReference(test.Plain(), test.Into(want));
    ASSERT_TRUE(reference) << reference.error().message;
    clamped += *reference;
    const FactKvView stored{test.quantised, test.tokens, want.data(), test.scales.data()};
    ASSERT_TRUE(DequantiseReference(stored, test.Back(want_back)));
    for (const int64_t target : SimdTargets()) {
      UseSimdTarget(target);
      const auto fast = Quantise(test.Plain(), test.Into(got));
      ASSERT_TRUE(fast) << fast.error().message;
      EXPECT_EQ(*fast, *reference);
      ASSERT_TRUE(got == want);
      ASSERT_TRUE(Dequantise(stored, test.Back(got_back)));
      ExpectSame({test.shape, test.tokens, got_back.data()},
                 {test.shape, test.tokens, want_back.data()});
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(clamped, 0U);
}

// Half a step of i8, and half a unit in the last of f8's three bits.
TEST(Codec, LosesNoMoreThanHalfAStep) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 100; ++round) {
    const Dtype codec = kQuantised[round % 2];
    CodecCase test(random, Dtype::kF32, codec, Values::kOrdinary);
    SCOPED_TRACE(test.Describe());
    const FactKvView was = test.Plain();
    Bytes bytes;
    const MutableFactKvView is = test.Into(bytes);
    ASSERT_TRUE(Quantise(was, is));
    const auto near = [&](double got, double want, double scale) {
      const double limit = codec == Dtype::kI8 ? kI8Max : kF8Max;
      const double clamped = std::clamp(want, -limit * scale, limit * scale);
      const double step =
          codec == Dtype::kI8 ? scale : std::max(std::abs(clamped) * 0x1p-3, scale * 0x1p-9);
      ASSERT_NEAR(got, clamped, step * 0.5001);
    };
    for (uint32_t l = 0; l < was.shape.layers; ++l) {
      for (uint32_t t = 0; t < was.tokens; ++t) {
        for (uint32_t h = 0; h < was.shape.kv_heads; ++h) {
          for (uint32_t d = 0; d < was.shape.k_dim; ++d) {
            near(ReadK(is, l, t, h, d), ReadK(was, l, t, h, d),
                 is.KeyScales(l)[h * was.shape.k_dim + d]);
          }
          for (uint32_t d = 0; d < was.shape.v_dim; ++d) {
            near(ReadV(is, l, t, h, d), ReadV(was, l, t, h, d), ReadVScale(is, l, t, h));
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Codec, KnownAnswer) {
  const KvShape shape{.layers = 1, .kv_heads = 1, .k_dim = 4, .v_dim = 3, .dtype = Dtype::kF32};
  std::vector<float> record{1.0F, -0.25F, 100.0F, 7.0F, 2.54F, -1.0F, 0.01F};
  const std::vector<float> scales{0.5F, 0.1F, 0.5F, 0.0F};
  KvShape i8 = shape;
  i8.dtype = Dtype::kI8;
  Bytes bytes(i8.TokenBytes());
  const MutableFactKvView to{i8, 1, bytes.data(), scales.data()};
  const FactKvView from{shape, 1, reinterpret_cast<const std::byte*>(record.data())};
  for (const auto quantise : {Quantise, QuantiseReference}) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0xA5});
    const auto clamped = quantise(from, to);
    ASSERT_TRUE(clamped);
    EXPECT_EQ(*clamped, 1U);  // 100 / 0.5
    std::vector<int> q;
    for (size_t i = 0; i < 7; ++i) q.push_back(static_cast<int8_t>(bytes[i]));
    EXPECT_EQ(q, (std::vector<int>{2, -2, 127, 0, 127, -50, 0}));
    EXPECT_EQ(ReadVScale(to, 0, 0, 0), 2.54F / 127);
  }
}

TEST(Codec, RefusesWhatDoesNotFit) {
  Random random(1);
  CodecCase test(random, Dtype::kF16, Dtype::kI8, Values::kOrdinary);
  Bytes bytes, back;
  const MutableFactKvView plain = test.Plain(), into = test.Into(bytes);
  const Bytes untouched = bytes;
  const auto refuses = [&](MutableFactKvView a, MutableFactKvView b) {
    for (const auto& run : {Quantise(a, b), QuantiseReference(a, b)}) {
      if (run || run.error().code != Code::kInvalid) return false;
    }
    for (const auto& run : {Dequantise(b, a), DequantiseReference(b, a)}) {
      if (run || run.error().code != Code::kInvalid) return false;
    }
    return bytes == untouched;
  };
  const auto with = [](MutableFactKvView view, auto change) {
    change(view);
    return view;
  };
  EXPECT_TRUE(refuses(into, plain));
  EXPECT_TRUE(refuses(plain, plain));
  EXPECT_TRUE(refuses(plain, with(into, [](auto& v) { ++v.tokens; })));
  EXPECT_TRUE(refuses(plain, with(into, [](auto& v) { ++v.shape.k_dim; })));
  EXPECT_TRUE(refuses(plain, with(into, [](auto& v) { v.key_scales = nullptr; })));
  EXPECT_TRUE(refuses(plain, with(into, [](auto& v) { v.data = nullptr; })));
  EXPECT_TRUE(refuses(with(plain, [](auto& v) { v.data = nullptr; }), into));
}

TEST(Codec, MaximaAreOfFiniteKeysOnly) {
  const KvShape shape{.layers = 1, .kv_heads = 2, .k_dim = 2, .v_dim = 1, .dtype = Dtype::kF32};
  const std::vector<float> record{1, -2, HUGE_VALF, 0, -3, 0.5F, 4, std::nanf(""), 99, 99, 99, 99};
  std::vector<float> maxima{0, 0, 0, 0.25F};
  const FactKvView view{shape, 2, reinterpret_cast<const std::byte*>(record.data())};
  ASSERT_TRUE(GrowKeyMaxima(view, maxima));
  EXPECT_EQ(maxima, (std::vector<float>{3, 2, 4, 0.25F}));
  EXPECT_FALSE(GrowKeyMaxima(view, std::span(maxima).first(3)));
}

}  // namespace
}  // namespace inferscale
