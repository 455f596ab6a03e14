// topk on a device, against the reference: on a GPU in inferscale-ops-test, else emulated.
#include <gtest/gtest.h>

#include <optional>

#include "device_under_test.h"
#include "topk_case.h"

namespace inferscale {
namespace {

TEST(DeviceTopK, EqualsTheReference) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int i = CasesForDevice(4); i > 0 && !testing::Test::HasFatalFailure(); --i) {
    TopKCase test = TopKCase::Make(random, 400, false);
    test.RunOn(DeviceUnderTest());
    test.Check(false);
  }
}

// Sums of small whole numbers are exact in any order, and many are equal.
TEST(DeviceTopK, TiesGoToTheSmallerRow) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int i = CasesForDevice(4); i > 0 && !testing::Test::HasFatalFailure(); --i) {
    TopKCase test = TopKCase::Make(random, 400, true);
    test.RunOn(DeviceUnderTest());
    test.Check(true);
  }
}

TEST(DeviceTopK, ManySearchesOfAllSizes) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  TopKCase test(16, 20, Dtype::kF16);
  for (int i = 0; i < 150; ++i) {
    test.Add(random.Chance(0.02) ? 700 : random.Between(0U, 5U),
             [&] { return static_cast<float>(random.Between(-2, 2)); });
  }
  test.RunOn(DeviceUnderTest());
  test.Check(true);
}

// As large as a GPU needs to cut a search into tiles of more than the fewest rows.
TEST(DeviceTopK, OneLargeSearch) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  TopKCase test(8, cuda::kTopKMaxK, Dtype::kF32);
  test.Add(static_cast<uint32_t>(2000 * CasesForDevice(1)),
           [&] { return static_cast<float>(random.Between(-30, 30)); });
  test.RunOn(DeviceUnderTest());
  test.Check(true);
}

// Every refusal comes before a launch.
TEST(DeviceTopK, RefusesWhatDoesNotFit) {
  Device& device = DeviceUnderTest();
  const DeviceMemory memory = device.Alloc(1 << 16).value();
  const DeviceSearch good = {memory.data(), reinterpret_cast<const float*>(memory.data()), nullptr,
                             16};
  const auto refusal = [&](auto change) -> std::optional<Code> {
    DeviceSearch search = good;
    DeviceTopK topk = {.searches = {&search, 1},
                       .dims = 64,
                       .k = 4,
                       .out_rows = reinterpret_cast<uint32_t*>(memory.data()),
                       .out_scores = reinterpret_cast<float*>(memory.data())};
    DeviceMemory workspace = device.AllocTopKWorkspace(topk).value();
    change(search, topk, workspace);
    const Status status = device.TopK(topk, workspace, nullptr);
    return status ? std::nullopt : std::optional(status.error().code);
  };
  using Search = DeviceSearch;
  EXPECT_EQ(refusal([](Search&, DeviceTopK& topk, auto&) { topk.searches = {}; }), std::nullopt);
  for (const uint32_t dims : {0U, 60U, 4104U}) {
    EXPECT_EQ(refusal([&](Search&, DeviceTopK& topk, auto&) { topk.dims = dims; }),
              Code::kUnsupported);
  }
  for (const uint32_t k : {0U, 129U}) {
    EXPECT_EQ(refusal([&](Search&, DeviceTopK& topk, auto&) { topk.k = k; }), Code::kUnsupported);
  }
  EXPECT_EQ(refusal([](Search&, DeviceTopK& topk, auto&) { topk.row_dtype = Dtype::kBF16; }),
            Code::kUnsupported);
  EXPECT_EQ(refusal([](Search&, DeviceTopK& topk, auto&) { topk.out_rows = nullptr; }),
            Code::kInvalid);
  EXPECT_EQ(refusal([](Search& search, auto&, auto&) { search.rows = nullptr; }), Code::kInvalid);
  EXPECT_EQ(refusal([](Search& search, auto&, auto&) { search.query = nullptr; }), Code::kInvalid);
  EXPECT_EQ(refusal([&](Search& search, auto&, auto&) { search.rows = memory.data() + 8; }),
            Code::kInvalid);
  EXPECT_EQ(refusal([&](auto&, auto&, DeviceMemory& workspace) {
              workspace = device.Alloc(cuda::kTopKTicketBytes).value();
            }),
            Code::kInvalid);
}

}  // namespace
}  // namespace inferscale
