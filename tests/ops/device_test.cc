// inject and capture on a device, against the plain formula. The same tests run on a GPU
// (inferscale-ops-test) and, without one, on the host's emulation of the same kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "device_case.h"
#include "device_under_test.h"

namespace inferscale {
namespace {

class DeviceTest : public testing::Test {
 protected:
  Device& device() { return DeviceUnderTest(); }

  // Runs `check` on random cases, with what repeats the one that fails.
  template <typename Check>
  void OnCases(int count, const DeviceCaseLimits& limits, Check check) {
    Random random(TestSeed());
    for (int i = 0; i < count && !HasFailure(); ++i) {
      DeviceCase test(device(), random, limits);
      SCOPED_TRACE(
          fmt::format("case {} of INFERSCALE_TEST_SEED={}: {}", i, TestSeed(), test.Describe()));
      check(test, random);
    }
  }

  void Inject(const DeviceCase& test, const DeviceTransfer& transfer) {
    const Status status = device().Inject(transfer, test.cache(), nullptr);
    ASSERT_TRUE(status) << status.error().message;
  }
};

TEST_F(DeviceTest, InjectIsTheFormula) {
  OnCases(CasesForDevice(60), {}, [&](DeviceCase& test, Random&) {
    Inject(test, test.transfer());
    test.ExpectSameCache(test.Cache(), test.InjectedCache());
  });
}

TEST_F(DeviceTest, InjectOfIntegersWithoutRotationIsExact) {
  OnCases(CasesForDevice(20), {.integers = true}, [&](DeviceCase& test, Random&) {
    Inject(test, test.transfer());
    EXPECT_TRUE(test.Cache() == test.InjectedCache());
  });
}

TEST_F(DeviceTest, CaptureIsTheInverse) {
  OnCases(CasesForDevice(40), {}, [&](DeviceCase& test, Random&) {
    test.PoisonRecords();
    const Status status = device().Capture(test.transfer(), test.cache(), nullptr);
    ASSERT_TRUE(status) << status.error().message;
    for (size_t s = 0; s < test.spans.size(); ++s) {
      test.ExpectSameRecord(s, test.Record(s), test.CapturedRecord(s));
    }
  });
}

TEST_F(DeviceTest, SpansInAnyOrderAndInPartsGiveTheSameCache) {
  OnCases(CasesForDevice(15), {}, [&](DeviceCase& test, Random& random) {
    Inject(test, test.transfer());
    const std::vector<std::byte> together = test.Cache();
    test.ResetCache();
    std::vector<DeviceSpan> parts;
    for (DeviceSpan span : test.spans) {
      const uint32_t first = random.Between(0U, span.tokens);
      DeviceSpan rest = span;
      span.tokens = first;
      rest.first += first;
      rest.position += static_cast<int32_t>(first);
      rest.page_token += first;
      rest.tokens -= first;
      parts.push_back(span);
      parts.push_back(rest);
    }
    std::shuffle(parts.begin(), parts.end(), random.engine());
    DeviceTransfer transfer = test.transfer();
    transfer.spans = parts;
    Inject(test, transfer);
    EXPECT_TRUE(test.Cache() == together);
  });
}

TEST_F(DeviceTest, MoreSpansAndPagesThanOneLaunchHolds) {
  const DeviceCaseLimits limits = {.max_layers = 1, .max_spans = 3, .max_span_tokens = 60};
  OnCases(CasesForDevice(4), limits, [&](DeviceCase& test, Random&) {
    Inject(test, test.transfer());
    const std::vector<std::byte> once = test.Cache();
    test.ResetCache();
    // The same spans again and again, behind pages that nobody uses.
    std::vector<DeviceSpan> many;
    std::vector<int32_t> pages;
    const uint32_t page_tokens = test.cache().spec().page_tokens;
    for (int i = 0; i < 150; ++i) {
      const auto offset = static_cast<uint32_t>(pages.size()) * page_tokens;
      for (DeviceSpan span : test.spans) {
        span.page_token += offset;
        many.push_back(span);
      }
      pages.insert(pages.end(), test.pages.begin(), test.pages.end());
      pages.insert(pages.end(), 7, -1);
    }
    DeviceTransfer transfer = test.transfer();
    transfer.spans = many;
    transfer.pages = pages;
    Inject(test, transfer);
    EXPECT_TRUE(test.Cache() == once);
  });
}

TEST_F(DeviceTest, NothingToDoDoesNothing) {
  OnCases(3, {}, [&](DeviceCase& test, Random&) {
    const std::vector<std::byte> before = test.Cache();
    DeviceTransfer transfer = test.transfer();
    transfer.spans = {};
    Inject(test, transfer);
    std::vector<DeviceSpan> empty = test.spans;
    for (DeviceSpan& span : empty) span.tokens = 0;
    transfer.spans = empty;
    Inject(test, transfer);
    EXPECT_TRUE(test.Cache() == before);
  });
}

// Every refusal comes before a launch: the cache stays as it was.
TEST_F(DeviceTest, RefusesWhatDoesNotFit) {
  OnCases(5, {}, [&](DeviceCase& test, Random&) {
    const std::vector<std::byte> before = test.Cache();
    const auto refuse = [&](const char* what, Code code, auto change) {
      std::vector<DeviceSpan> spans = test.spans;
      spans.front().tokens = 1;
      spans.front().first = 0;
      std::vector<int32_t> pages = test.pages;
      DeviceTransfer transfer = test.transfer();
      change(transfer, spans, pages);
      transfer.spans = spans;
      transfer.pages = pages;
      const Status status = device().Inject(transfer, test.cache(), nullptr);
      ASSERT_FALSE(status) << what;
      EXPECT_EQ(status.error().code, code) << what << ": " << status.error().message;
    };
    using Spans = std::vector<DeviceSpan>;
    using Pages = std::vector<int32_t>;
    refuse("over its record", Code::kInvalid,
           [](auto&, Spans& spans, Pages&) { spans.front().first = spans.front().record_tokens; });
    refuse("over the list of pages", Code::kInvalid, [&](auto&, Spans& spans, Pages& pages) {
      spans.front().page_token =
          static_cast<uint32_t>(pages.size()) * test.cache().spec().page_tokens;
    });
    refuse("a page outside of the cache", Code::kInvalid, [&](auto&, Spans& spans, Pages& pages) {
      pages[spans.front().page_token / test.cache().spec().page_tokens] =
          static_cast<int32_t>(test.cache().spec().pages);
    });
    refuse("a negative page", Code::kInvalid, [&](auto&, Spans& spans, Pages& pages) {
      pages[spans.front().page_token / test.cache().spec().page_tokens] = -1;
    });
    refuse("a position without an angle", Code::kInvalid, [&](auto&, Spans& spans, Pages&) {
      spans.front().position = static_cast<int32_t>(test.cache().positions());
    });
    refuse("a negative position", Code::kInvalid,
           [](auto&, Spans& spans, Pages&) { spans.front().position = -1; });
    refuse("a misaligned record", Code::kInvalid, [](auto&, Spans& spans, Pages&) {
      spans.front().record = static_cast<std::byte*>(spans.front().record) + 8;
    });
    refuse("no record", Code::kInvalid,
           [](auto&, Spans& spans, Pages&) { spans.front().record = nullptr; });
    refuse("a dtype without kernels", Code::kUnsupported,
           [](DeviceTransfer& transfer, Spans&, Pages&) { transfer.record_dtype = Dtype::kF32; });
    EXPECT_TRUE(test.Cache() == before);
  });
}

TEST_F(DeviceTest, RefusesCachesThatKernelsCannotMove) {
  auto memory = device().Alloc(1 << 16);
  ASSERT_TRUE(memory);
  const auto base = reinterpret_cast<uint64_t>(memory->data());
  const RopeTable rope({.kind = RopeKind::kNeox, .head_dim = 64, .rotary_dims = 64});
  const std::vector<uint8_t> layer_table = {0};
  DeviceCacheSpec good;
  good.k_base = {base};
  good.v_base = {base + 128};
  good.k = good.v = {16 * 256, 256, 256};
  good.page_tokens = 16;
  good.pages = 4;
  good.heads = 1;
  good.dim = 64;
  const auto describe = [&](auto change) {
    DeviceCacheSpec spec = good;
    change(spec);
    return device().Describe(spec, {{&rope, 1}, layer_table}, 8);
  };
  EXPECT_TRUE(describe([](DeviceCacheSpec&) {}));
  EXPECT_FALSE(describe([](DeviceCacheSpec& spec) { spec.k_base[0] += 2; }));
  EXPECT_FALSE(describe([](DeviceCacheSpec& spec) { spec.v.token += 4; }));
  EXPECT_FALSE(describe([](DeviceCacheSpec& spec) { spec.dim = 72; }));
  EXPECT_FALSE(describe([](DeviceCacheSpec& spec) { spec.page_tokens = 0; }));
  EXPECT_FALSE(describe([](DeviceCacheSpec& spec) { spec.v_base.clear(); }));
  EXPECT_FALSE(describe([](DeviceCacheSpec& spec) { spec.k_scale = {1.0F, 2.0F}; }));
  EXPECT_FALSE(describe([](DeviceCacheSpec& spec) { spec.dim = 32; }));  // RoPE over 64 dims
  EXPECT_TRUE(
      describe([](DeviceCacheSpec& spec) { spec.record_layer = {1}, spec.record_layers = 2; }));
  EXPECT_FALSE(
      describe([](DeviceCacheSpec& spec) { spec.record_layer = {1}, spec.record_layers = 1; }));
  EXPECT_FALSE(describe([](DeviceCacheSpec& spec) {
    spec.record_layer = {0, 1}, spec.record_layers = 2;
  }));
}

TEST_F(DeviceTest, SaysThatMemoryIsShort) {
  const auto memory = device().Alloc(uint64_t{1} << 50);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, Code::kExhausted);
}

}  // namespace
}  // namespace inferscale
