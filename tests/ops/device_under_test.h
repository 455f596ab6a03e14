// Which device the tests of ops run on; each program that links them says.
#ifndef INFERSCALE_TESTS_OPS_DEVICE_UNDER_TEST_H_
#define INFERSCALE_TESTS_OPS_DEVICE_UNDER_TEST_H_

#include "ops/device.h"

namespace inferscale {

Device& DeviceUnderTest();

// How many random cases to run: more where they cost little.
int CasesForDevice(int few);

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_OPS_DEVICE_UNDER_TEST_H_
