// topk's kernels run thread by thread on the host (ops/cuda/emulate.h).
#ifndef INFERSCALE_TESTS_OPS_EMULATED_TOPK_H_
#define INFERSCALE_TESTS_OPS_EMULATED_TOPK_H_

#include "ops/topk/topk_plan.h"

namespace inferscale {

// As LaunchTopK (ops/topk/topk_cuda.h) on a device of that size. Memory is host memory.
int EmulateTopK(const cuda::PluginTopK& topk, const cuda::TopKDevice& device, uint32_t seed);

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_OPS_EMULATED_TOPK_H_
