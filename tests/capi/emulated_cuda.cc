// The emulated device as a plug-in that inferscale_device_open can open.
#include "../ops/emulated_plugin.h"
#include "../ops/emulated_streams.h"

extern "C" __attribute__((visibility("default"))) const inferscale::cuda::Plugin*
inferscale_cuda_plugin(uint32_t abi) {
  return abi == inferscale::cuda::kPluginAbi ? &inferscale::EmulatedPlugin() : nullptr;
}

// For the tests that open it.
extern "C" __attribute__((visibility("default"))) void inferscale_emulated_rules(
    const inferscale::EmulatedRules* rules) {
  inferscale::SetEmulatedRules(*rules);
}
