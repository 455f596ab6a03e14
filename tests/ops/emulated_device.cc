#include "../kv/seed.h"
#include "device_under_test.h"
#include "emulated_plugin.h"
#include "emulated_streams.h"

namespace inferscale {

Device& DeviceUnderTest() {
  static const std::shared_ptr<Device> device = [] {
    SetEmulatedRules({.lazy = true, .seed = TestSeed()});
    return Device::Open(0, EmulatedPlugin()).value();
  }();
  return *device;
}

int CasesForDevice(int few) { return few; }

}  // namespace inferscale
