#include "ops/capture/capture.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/element.h"
#include "transfer_case.h"

namespace inferscale {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<Bytes> PoisonedRecords(const TransferCase& test) {
  std::vector<Bytes> out;
  for (const Bytes& bytes : test.record_bytes) out.emplace_back(bytes.size(), std::byte{0xA5});
  return out;
}

// Record `s` of both element by element where its span is, byte by byte elsewhere.
void Compare(const TransferCase& test, size_t s, Bytes got, Bytes want, Agreement& agreement) {
  const KvShape& shape = test.records[s].shape;
  const CacheSpan& span = test.spans[s];
  const MutableFactKvView a{shape, test.records[s].tokens, got.data()};
  const MutableFactKvView b{shape, test.records[s].tokens, want.data()};
  for (uint32_t l = 0; l < shape.layers; ++l) {
    for (uint32_t row = 0; row < span.tokens * shape.kv_heads; ++row) {
      for (const bool is_k : {true, false}) {
        const uint32_t dims = is_k ? shape.k_dim : shape.v_dim;
        const size_t bytes = dims * DtypeSize(shape.dtype);
        const size_t at = (span.record_token * shape.kv_heads + row) * bytes;
        std::byte* x = (is_k ? a.K(l) : a.V(l)) + at;
        std::byte* y = (is_k ? b.K(l) : b.V(l)) + at;
        ExpectClose(x, y, shape.dtype, dims, agreement);
        if (testing::Test::HasFatalFailure()) return;
        std::fill_n(x, bytes, std::byte{0xA5});
        std::fill_n(y, bytes, std::byte{0xA5});
      }
    }
  }
  const Bytes poison(got.size(), std::byte{0xA5});
  ASSERT_TRUE(want == poison) << "the reference wrote outside of the span";
  ASSERT_TRUE(got == poison) << "wrote outside of the span";
}

TEST(Capture, EqualsTheReferenceOnEverySimdTarget) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  Agreement halves, floats;
  for (int round = 0; round < 150; ++round) {
    TransferCase test(random);
    SCOPED_TRACE(test.Describe());
    ASSERT_TRUE(InjectReference(test.inject_spans(), test.ropes(), test.layout()));
    const Bytes cache = test.cache;
    std::vector<Bytes> want = PoisonedRecords(test);
    ASSERT_TRUE(CaptureReference(test.capture_spans(want), test.ropes(), test.layout()));
    for (const int64_t target : SimdTargets()) {
      UseSimdTarget(target);
      std::vector<Bytes> got = PoisonedRecords(test);
      ASSERT_TRUE(
          Capture(test.capture_spans(got), test.ropes(), test.layout(), random.Between(1, 3)));
      ASSERT_TRUE(test.cache == cache) << "the cache was written";
      for (size_t s = 0; s < got.size(); ++s) {
        const bool is_float = test.records[s].shape.dtype == Dtype::kF32;
        Compare(test, s, got[s], want[s], is_float ? floats : halves);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(halves.elements, 100000U);
  EXPECT_LE(halves.different * 1000, halves.elements);
}

TEST(Capture, TakesOffWhatInjectPutOn) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  const auto unit = [](Dtype dtype) {
    return dtype == Dtype::kF32 ? 0x1p-21 : dtype == Dtype::kF16 ? 0x1p-10 : 0x1p-7;
  };
  for (int round = 0; round < 100; ++round) {
    TransferCase test(random, Values::kOrdinary);
    SCOPED_TRACE(test.Describe());
    ASSERT_TRUE(Inject(test.inject_spans(), test.ropes(), test.layout()));
    std::vector<Bytes> back = test.record_bytes;  // what no span covers stays equal
    // Layer by layer, the others being elsewhere.
    for (size_t layer = 0; layer < test.k_base.size(); ++layer) {
      std::vector<std::byte*> k(test.k_base.size(), nullptr), v = k;
      k[layer] = test.k_base[layer];
      v[layer] = test.v_base[layer];
      CacheLayout layout = test.layout();
      layout.k_base = k;
      layout.v_base = v;
      ASSERT_TRUE(Capture(test.capture_spans(back), test.ropes(), layout));
    }
    for (size_t s = 0; s < back.size(); ++s) {
      const FactKvView& was = test.records[s];
      const MutableFactKvView is{was.shape, was.tokens, back[s].data()};
      const uint32_t rows = was.tokens * was.shape.kv_heads;
      for (uint32_t l = 0; l < was.shape.layers; ++l) {
        for (uint32_t row = 0; row < 2 * rows; ++row) {
          const bool is_k = row < rows;
          const uint32_t dims = is_k ? was.shape.k_dim : was.shape.v_dim;
          const size_t first = size_t{row % rows} * dims;
          double largest = 0;
          std::vector<double> want(dims), got(dims);
          for (uint32_t d = 0; d < dims; ++d) {
            want[d] = ReadElement(is_k ? was.K(l) : was.V(l), was.shape.dtype, first + d);
            got[d] = ReadElement(is_k ? is.K(l) : is.V(l), was.shape.dtype, first + d);
            largest = std::max(largest, std::abs(want[d]));
          }
          for (uint32_t d = 0; d < dims; ++d) {
            ASSERT_NEAR(got[d], want[d],
                        2 * largest * (unit(test.cache_dtype) + unit(was.shape.dtype)));
          }
        }
      }
    }
  }
}

TEST(Capture, RefusesWhatInjectRefuses) {
  const KvShape shape{.layers = 1, .kv_heads = 1, .k_dim = 2, .v_dim = 2, .dtype = Dtype::kF16};
  Bytes record(2 * shape.TokenBytes(), std::byte{0xA5});
  Bytes cache(64, std::byte{1});
  const std::vector<std::byte*> base{cache.data()};
  const std::vector<RopeTable> tables{RopeTable(RopeSpec{})};
  const std::vector<uint8_t> layer_table{0};
  const CacheLayout layout{base, base, {0, 4, 4}, {0, 4, 4}, 0, Dtype::kF16};
  CaptureSpan span{{shape, 2, record.data()}, {.tokens = 3, .slots = {}}};
  for (const auto& run : {Capture({&span, 1}, {tables, layer_table}, layout),
                          CaptureReference({&span, 1}, {tables, layer_table}, layout)}) {
    ASSERT_FALSE(run);
    EXPECT_EQ(run.error().code, Code::kInvalid);
  }
  span.span.tokens = 1;
  span.record.shape.dtype = Dtype::kI8;
  EXPECT_FALSE(Capture({&span, 1}, {tables, layer_table}, layout));
  EXPECT_FALSE(CaptureReference({&span, 1}, {tables, layer_table}, layout));
  EXPECT_TRUE(record == Bytes(record.size(), std::byte{0xA5}));
}

}  // namespace
}  // namespace inferscale
