// inferscale-ops-test: every test of the GPU's ops, on the GPU of this machine.
//
//   inferscale-ops-test [--device N] [--plugin FILE] [--cases TIMES] [--perf] [GoogleTest's flags]
//
// --perf times the ops instead. Exits with 2 if there is no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "device_perf.h"
#include "device_under_test.h"

namespace inferscale {

namespace {

std::shared_ptr<Device> the_device;
int more_cases = 4;

}  // namespace

Device& DeviceUnderTest() { return *the_device; }

int CasesForDevice(int few) { return few * more_cases; }

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int ordinal = 0;
  std::string plugin;
  bool perf = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--perf") {
      perf = true;
    } else if (flag == "--device" && has_value) {
      ordinal = std::stoi(argv[++i]);
    } else if (flag == "--plugin" && has_value) {
      plugin = argv[++i];
    } else if (flag == "--cases" && has_value) {
      more_cases = std::stoi(argv[++i]);
    } else {
      fmt::print(stderr, "inferscale-ops-test: what is {}?\n", flag);
      return 1;
    }
  }
  auto device = Device::Open(ordinal, plugin);
  if (!device) {
    fmt::print(stderr, "inferscale-ops-test: {}\n", device.error().message);
    return 2;
  }
  the_device = *device;
  fmt::print("{}, {} multiprocessors, {} MiB; plug-in {}\n", the_device->info().name,
             the_device->info().multiprocessors, the_device->info().memory_bytes >> 20,
             the_device->build());
  if (!perf) return RUN_ALL_TESTS();
  const Status status = PrintDevicePerf(*the_device);
  if (!status) fmt::print(stderr, "inferscale-ops-test: {}\n", status.error().message);
  return status ? 0 : 1;
}

}  // namespace inferscale

int main(int argc, char** argv) { return inferscale::Main(argc, argv); }
