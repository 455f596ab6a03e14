#include "ops/inject/inject.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "transfer_case.h"

namespace inferscale {
namespace {

using Bytes = std::vector<std::byte>;

// Runs `inject` on a fresh poisoned cache and returns what it left there.
template <typename Run>
Bytes CacheAfter(TransferCase& test, Run inject) {
  std::fill(test.cache.begin(), test.cache.end(), std::byte{0xA5});
  const Status status = inject();
  EXPECT_TRUE(status) << status.error().message;
  return test.cache;
}

// Both caches element by element where spans are, byte by byte elsewhere.
void Compare(const TransferCase& test, Bytes got, Bytes want, Agreement& agreement) {
  const std::byte* origin = test.cache.data();
  for (size_t s = 0; s < test.spans.size(); ++s) {
    const KvShape& shape = test.records[s].shape;
    for (uint32_t t = 0; t < test.spans[s].tokens; ++t) {
      for (uint32_t l = 0; l < shape.layers; ++l) {
        for (uint32_t h = 0; h < shape.kv_heads; ++h) {
          for (const bool is_k : {true, false}) {
            const auto at = static_cast<size_t>(test.CacheRow(is_k, s, t, l, h) - origin);
            const uint32_t dims = is_k ? shape.k_dim : shape.v_dim;
            ExpectClose(got.data() + at, want.data() + at, test.cache_dtype, dims, agreement);
            if (testing::Test::HasFatalFailure()) return;
            const size_t bytes = dims * DtypeSize(test.cache_dtype);
            std::fill_n(got.begin() + static_cast<ptrdiff_t>(at), bytes, std::byte{0xA5});
            std::fill_n(want.begin() + static_cast<ptrdiff_t>(at), bytes, std::byte{0xA5});
          }
        }
      }
    }
  }
  const Bytes poison(got.size(), std::byte{0xA5});
  ASSERT_TRUE(want == poison) << "the reference wrote outside of the spans";
  ASSERT_TRUE(got == poison) << "wrote outside of the spans";
}

TEST(Inject, EqualsTheReferenceOnEverySimdTarget) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  Agreement halves, floats;
  for (int round = 0; round < 150; ++round) {
    TransferCase test(random, Values::kHard, Records::kAlsoQuantised);
    SCOPED_TRACE(test.Describe());
    const auto spans = test.inject_spans();
    const Bytes want =
        CacheAfter(test, [&] { return InjectReference(spans, test.ropes(), test.layout()); });
    for (const int64_t target : SimdTargets()) {
      UseSimdTarget(target);
      const Bytes got = CacheAfter(
          test, [&] { return Inject(spans, test.ropes(), test.layout(), random.Between(1, 3)); });
      Compare(test, got, want, test.cache_dtype == Dtype::kF32 ? floats : halves);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_GT(halves.elements, 100000U);
  EXPECT_LE(halves.different * 1000, halves.elements);
  RecordProperty("different_halves_per_million",
                 static_cast<int>(halves.different * 1000000 / halves.elements));
}

TEST(Inject, ThreadsDoNotChangeAByte) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  const KvShape shape{.layers = 8, .kv_heads = 8, .k_dim = 128, .v_dim = 128, .dtype = Dtype::kF16};
  constexpr uint32_t kTokens = 500;  // enough for Inject to take up the offer
  Bytes record(kTokens * shape.TokenBytes());
  for (std::byte& b : record) b = static_cast<std::byte>(random.Between(0, 255));
  const std::vector<RopeTable> tables{RopeTable(
      {.kind = RopeKind::kInterleaved, .head_dim = 128, .rotary_dims = 128, .freq_base = 5e5F})};
  const std::vector<uint8_t> layer_table(shape.layers, 0);
  std::vector<Bytes> caches(3, Bytes(record.size(), std::byte{0xA5}));
  for (size_t i = 0; i < caches.size(); ++i) {
    const MutableFactKvView rows{shape, kTokens, caches[i].data()};
    std::vector<std::byte*> k, v;
    for (uint32_t l = 0; l < shape.layers; ++l) k.push_back(rows.K(l)), v.push_back(rows.V(l));
    const CacheStrides strides{0, static_cast<int64_t>(shape.KRowBytes()), 256};
    const CacheLayout layout{k, v, strides, strides, 0, Dtype::kF16};
    const InjectSpan span{{shape, kTokens, record.data()},
                          {.record_token = 0, .tokens = kTokens, .position = 17, .slots = {}}};
    ASSERT_TRUE(Inject({&span, 1}, {tables, layer_table}, layout, static_cast<int>(i) + 1));
  }
  EXPECT_TRUE(caches[1] == caches[0]);
  EXPECT_TRUE(caches[2] == caches[0]);
}

TEST(Inject, AnEnginesTableIsKnownUpToItsLastPosition) {
  constexpr KvShape kShape{1, 1, 4, 4, Dtype::kF32};
  const std::vector<RopeTable> tables{
      RopeTable::FromValues(RopeKind::kNeox, 4, 4, std::vector<float>(3 * 4, 1.0F)).value()};
  const uint8_t layer_table = 0;
  std::vector<float> record(2 * 8, 1.0F), cache(2 * 8);
  std::byte* const k = reinterpret_cast<std::byte*>(cache.data());
  std::byte* const v = k + cache.size() / 2 * sizeof(float);
  const CacheStrides strides{0, 4 * sizeof(float), 4 * sizeof(float)};
  const CacheLayout layout{{&k, 1}, {&v, 1}, strides, strides, 0, Dtype::kF32};
  const auto code = [&](int32_t position, uint32_t tokens) {
    const InjectSpan span{{kShape, 2, reinterpret_cast<const std::byte*>(record.data())},
                          {.record_token = 0, .tokens = tokens, .position = position, .slots = {}}};
    const RopeTables ropes{tables, {&layer_table, 1}};
    const Status fast = Inject({&span, 1}, ropes, layout);
    EXPECT_EQ(InjectReference({&span, 1}, ropes, layout).has_value(), fast.has_value());
    return fast ? Code{} : fast.error().code;
  };
  EXPECT_EQ(code(1, 2), Code{});
  EXPECT_EQ(cache[0], 0.0F);  // 1 * 1 - 1 * 1
  EXPECT_EQ(cache[2], 2.0F);
  EXPECT_EQ(code(2, 2), Code::kInvalid);
  EXPECT_EQ(code(3, 0), Code{});
  EXPECT_EQ(code(3, 1), Code::kInvalid);
}

TEST(Inject, SpansTogetherEqualSpansOneByOne) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 100; ++round) {
    TransferCase test(random, Values::kHard, Records::kAlsoQuantised);
    SCOPED_TRACE(test.Describe());
    const auto spans = test.inject_spans();
    const Bytes together =
        CacheAfter(test, [&] { return Inject(spans, test.ropes(), test.layout()); });
    const Bytes single = CacheAfter(test, [&]() -> Status {
      for (const InjectSpan& span : spans) {
        INFERSCALE_TRY(Inject({&span, 1}, test.ropes(), test.layout()));
      }
      return {};
    });
    ASSERT_TRUE(together == single);
  }
}

// Layers that lie in two caches: each call moves its own and leaves the others alone.
TEST(Inject, LayersByThemselvesEqualAllTogether) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 100; ++round) {
    TransferCase test(random, Values::kHard, Records::kAlsoQuantised);
    SCOPED_TRACE(test.Describe());
    const auto spans = test.inject_spans();
    std::array<std::vector<std::byte*>, 2> k, v;
    for (auto* half : {&k, &v}) half->fill(std::vector<std::byte*>(test.k_base.size(), nullptr));
    for (size_t layer = 0; layer < test.k_base.size(); ++layer) {
      const auto part = random.Between<size_t>(0, 1);
      k[part][layer] = test.k_base[layer];
      v[part][layer] = test.v_base[layer];
    }
    for (const auto inject : {+[](std::span<const InjectSpan> items, const RopeTables&ropes,
                                  const CacheLayout&cache) { return Inject(items, ropes, cache); },
                              &InjectReference}) {
      CacheLayout layout = test.layout();
      const Bytes together = CacheAfter(test, [&] { return inject(spans, test.ropes(), layout); });
      const Bytes parts = CacheAfter(test, [&]() -> Status {
        for (const size_t part : {0U, 1U}) {
          layout.k_base = k[part];
          layout.v_base = v[part];
          INFERSCALE_TRY(inject(spans, test.ropes(), layout));
        }
        return {};
      });
      ASSERT_TRUE(together == parts);
    }
  }
}

TEST(Inject, APrefixOfARecordIsTheRecordOfThePrefix) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 100; ++round) {
    TransferCase test(random, Values::kHard, Records::kAlsoQuantised);
    SCOPED_TRACE(test.Describe());
    auto spans = test.inject_spans();
    spans.resize(1);
    const FactKvView whole = spans[0].record;
    CacheSpan& span = spans[0].span;
    span.record_token = 0;
    span.tokens = std::max(span.tokens, 1U);
    const KvShape& shape = whole.shape;
    Bytes prefix(span.tokens * shape.TokenBytes());
    const MutableFactKvView cut{shape, span.tokens, prefix.data(), whole.key_scales};
    for (uint32_t l = 0; l < shape.layers; ++l) {
      std::memcpy(cut.K(l), whole.K(l), span.tokens * shape.KRowBytes());
      std::memcpy(cut.V(l), whole.V(l), span.tokens * shape.VRowBytes());
      std::memcpy(cut.VScales(l), whole.VScales(l), span.tokens * shape.VScaleRowBytes());
    }
    const Bytes of_whole =
        CacheAfter(test, [&] { return Inject(spans, test.ropes(), test.layout()); });
    spans[0].record = cut;
    const Bytes of_cut =
        CacheAfter(test, [&] { return Inject(spans, test.ropes(), test.layout()); });
    ASSERT_TRUE(of_whole == of_cut);
  }
}

// The example of docs/ops.md, in pages of 4 tokens; its value holds NaNs that only a copy keeps.
TEST(Inject, KnownAnswer) {
  const KvShape shape{.layers = 1, .kv_heads = 1, .k_dim = 4, .v_dim = 2, .dtype = Dtype::kF16};
  const std::vector<uint16_t> record{0,      0, 0,      0,
                                     0x3C00, 0, 0x3800, 0xC000,   // K of both tokens
                                     0,      0, 0x7C01, 0xFE55};  // V
  std::vector<uint16_t> k_cache(8 * 4, 0xAAAA), v_cache(8 * 2, 0xAAAA);
  const std::vector<std::byte*> k{reinterpret_cast<std::byte*>(k_cache.data())};
  const std::vector<std::byte*> v{reinterpret_cast<std::byte*>(v_cache.data())};
  const std::vector<RopeTable> tables{
      RopeTable({.kind = RopeKind::kInterleaved, .head_dim = 4, .rotary_dims = 4})};
  const std::vector<uint8_t> layer_table{0};
  const InjectSpan span{{shape, 2, reinterpret_cast<const std::byte*>(record.data())},
                        {.tokens = 2, .position = 2, .first_slot = 5, .slots = {}}};
  const CacheLayout layout{k, v, {32, 8, 8}, {16, 4, 4}, 4, Dtype::kF16};
  ASSERT_TRUE(Inject({&span, 1}, {tables, layer_table}, layout));
  EXPECT_EQ(std::vector(k_cache.begin() + 24, k_cache.begin() + 28),
            (std::vector<uint16_t>{0xBBEC, 0x3084, 0x387A, 0xBFF0}));
  EXPECT_EQ(std::vector(v_cache.begin() + 12, v_cache.begin() + 14),
            (std::vector<uint16_t>{0x7C01, 0xFE55}));
  EXPECT_EQ(std::count(k_cache.begin(), k_cache.end(), 0xAAAA), 6 * 4);
  EXPECT_EQ(std::count(v_cache.begin(), v_cache.end(), 0xAAAA), 6 * 2);
}

// K = q times its channel's scale, V = q times its row's, by hand.
TEST(Inject, KnownAnswerQuantised) {
  const KvShape shape{.layers = 1, .kv_heads = 1, .k_dim = 2, .v_dim = 2, .dtype = Dtype::kF8E4M3};
  // Two tokens: K (1, -2) and (448, 0.5), V (1, 0) and (-1.5, 2^-9), scales 2 and 0.25.
  std::vector<uint8_t> record{0x38, 0xC0, 0x7E, 0x30, 0x38, 0x00, 0xBC, 0x01};
  const std::vector<float> v_scales{2.0F, 0.25F}, key_scales{0.5F, 4.0F};
  for (const float scale : v_scales) {
    const auto bytes = std::bit_cast<std::array<uint8_t, 4>>(scale);
    record.insert(record.end(), bytes.begin(), bytes.end());
  }
  std::vector<float> k_cache(4), v_cache(4);
  const std::vector<std::byte*> k{reinterpret_cast<std::byte*>(k_cache.data())};
  const std::vector<std::byte*> v{reinterpret_cast<std::byte*>(v_cache.data())};
  const std::vector<RopeTable> tables{RopeTable(RopeSpec{})};
  const std::vector<uint8_t> layer_table{0};
  const InjectSpan span{
      {shape, 2, reinterpret_cast<const std::byte*>(record.data()), key_scales.data()},
      {.tokens = 2, .slots = {}}};
  const CacheLayout layout{k, v, {0, 8, 8}, {0, 8, 8}, 0, Dtype::kF32};
  ASSERT_TRUE(Inject({&span, 1}, {tables, layer_table}, layout));
  EXPECT_EQ(k_cache, (std::vector<float>{0.5F, -8.0F, 224.0F, 2.0F}));
  EXPECT_EQ(v_cache, (std::vector<float>{2.0F, 0.0F, -0.375F, 0x1p-11F}));
}

class InjectErrors : public testing::Test {
 protected:
  // Fails unless the changed arguments are refused by both implementations, with nothing written.
  template <typename Change>
  void Refuses(Change change) {
    Bytes cache(4096, std::byte{0xA5});
    Bytes record(4096, std::byte{1});
    Arguments a;
    const KvShape shape{.layers = 2, .kv_heads = 2, .k_dim = 8, .v_dim = 4, .dtype = Dtype::kF16};
    const CacheSpan span{
        .record_token = 1, .tokens = 3, .position = 5, .first_slot = 2, .slots = {}};
    a.spans = {{{shape, 4, record.data()}, span}, {{shape, 4, record.data()}, span}};
    a.spans[1].span.first_slot = 10;
    a.tables.emplace_back(RopeSpec{.kind = RopeKind::kNeox, .head_dim = 8, .rotary_dims = 8});
    a.layer_table = {0, 0};
    a.k = {cache.data(), cache.data() + 1024};
    a.v = {cache.data() + 2048, cache.data() + 3072};
    change(a);
    const CacheLayout layout{a.k, a.v, {0, 32, 16}, {0, 16, 8}, 0, a.cache_dtype};
    const RopeTables ropes{a.tables, a.layer_table};
    const Status fast = Inject(a.spans, ropes, layout, a.threads);
    ASSERT_FALSE(fast);
    EXPECT_EQ(fast.error().code, Code::kInvalid);
    if (a.threads == 1) {
      EXPECT_FALSE(InjectReference(a.spans, ropes, layout));
    }
    EXPECT_TRUE(cache == Bytes(cache.size(), std::byte{0xA5}));
  }

  struct Arguments {
    std::vector<InjectSpan> spans;
    std::vector<RopeTable> tables;
    std::vector<uint8_t> layer_table;
    std::vector<std::byte*> k, v;
    Dtype cache_dtype = Dtype::kF16;
    int threads = 1;
  };
};

TEST_F(InjectErrors, AreRefusedAndWriteNothing) {
  // The second span is wrong each time: the first must not have been written either.
  Refuses([](Arguments& a) { a.spans[1].span.tokens = 4; });
  Refuses([](Arguments& a) { a.spans[1].span.record_token = 0xFFFFFFFF; });
  Refuses([](Arguments& a) { a.spans[1].span.first_slot = -1; });
  Refuses([](Arguments& a) { a.spans[1].span.position = -1; });
  Refuses([](Arguments& a) { a.spans[1].span.position = 0x7FFFFFFE; });
  Refuses([](Arguments& a) { a.spans[1].record.data = nullptr; });
  Refuses([](Arguments& a) { a.spans[1].record.shape.layers = 1; });
  Refuses([](Arguments& a) { a.spans[1].record.shape.kv_heads = 1; });
  Refuses([](Arguments& a) { a.spans[1].record.shape.v_dim = 2; });
  Refuses([](Arguments& a) {
    for (InjectSpan& span : a.spans) span.record.shape.k_dim = 0;
  });
  Refuses([](Arguments& a) {
    for (InjectSpan& span : a.spans) span.record.shape.k_dim = 10;
  });
  static constexpr int64_t kNegative[] = {3, -1, 4};
  Refuses([](Arguments& a) { a.spans[1].span.slots = kNegative; });
  Refuses([](Arguments& a) { a.spans[1].span.slots = std::span(kNegative).first(1); });
  Refuses([](Arguments& a) { a.layer_table = {0}; });
  Refuses([](Arguments& a) { a.layer_table = {0, 1}; });
  Refuses([](Arguments& a) { a.k.pop_back(); });
  Refuses([](Arguments& a) { a.v.pop_back(); });
  Refuses([](Arguments& a) { a.k.back() = nullptr; });
  Refuses([](Arguments& a) { a.threads = 0; });
  Refuses([](Arguments& a) { a.spans[1].record.shape.dtype = Dtype::kI8; });  // no key scales
  Refuses([](Arguments& a) { a.cache_dtype = Dtype::kF8E4M3; });
}

TEST(Inject, NothingToDoIsFine) { EXPECT_TRUE(Inject({}, {}, {})); }

}  // namespace
}  // namespace inferscale
