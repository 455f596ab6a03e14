// Cuts a transfer into launches whose arguments fit, and a launch into tiles. Host code of both the
// CUDA plug-in and the emulation.
#ifndef INFERSCALE_OPS_CUDA_TRANSFER_PLAN_H_
#define INFERSCALE_OPS_CUDA_TRANSFER_PLAN_H_

#include <functional>

#include "ops/cuda/transfer.cuh"

namespace inferscale::cuda {

// Runs `launch` with the arguments of each launch in turn, for the grid that GridOf gives.
// Nearly always there is one. Several, and not a buffer in memory, where the arguments don't fit:
// that is past 100 spans or 15,000 tokens, which take ten times longer than a launch; and a buffer
// could not be reused before the kernel or the CUDA graph that reads it is gone.
//
// Stops at the first result that isn't 0, and returns it.
int ForEachLaunch(const PluginTransfer& transfer,
                  const std::function<int(const TransferParams& params, uint32_t tiles)>& launch);

struct TransferGrid {
  uint32_t x, y;
};
inline TransferGrid GridOf(const TransferParams& params, uint32_t tiles) {
  const uint32_t layer_blocks =
      (params.cache.layers + params.layers_at_once - 1) / params.layers_at_once;
  return {layer_blocks * params.head_groups, tiles};
}

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_CUDA_TRANSFER_PLAN_H_
