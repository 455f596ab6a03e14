#ifndef INFERSCALE_TESTS_OPS_DEVICE_PERF_H_
#define INFERSCALE_TESTS_OPS_DEVICE_PERF_H_

#include "ops/device.h"

namespace inferscale {

// Prints how long inject and capture take beside a copy of the same bytes, for the shapes of common
// models. A quick look by the clock of the host, over many calls in a row; bench/gpu has the
// careful numbers and the peers.
Status PrintDevicePerf(Device& device);

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_OPS_DEVICE_PERF_H_
