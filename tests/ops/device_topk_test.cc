// topk on a device, against the reference: on a GPU in inferscale-ops-test, else emulated.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace inferscale
