// A plug-in without a GPU: the same kernel bodies, planning and dispatch, run thread by thread on
// the host. Device memory is host memory.
#ifndef INFERSCALE_TESTS_OPS_EMULATED_PLUGIN_H_
#define INFERSCALE_TESTS_OPS_EMULATED_PLUGIN_H_

#include "ops/cuda/plugin.h"

namespace inferscale {

const cuda::Plugin& EmulatedPlugin();

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_OPS_EMULATED_PLUGIN_H_
