// topk on CUDA (contract of the results: topk.h; of the arguments: ops/cuda/plugin.h).
//
// Asynchronous, never synchronises or allocates, and can be captured in a CUDA graph. One launch
// for up to 1,000 searches. Searches of one call share dims, k and the rows' dtype; their counts
// may differ widely.
//
// Refused with kNoInstance: rows that are not f16 or f32, dims that are not a multiple of 8 or
// above 4096, k of 0 or above 128, and more than 2^31 rows in a search.
//
// The workspace is of TopKWorkspace() bytes for the same call (8 for each row, each search's rows
// rounded up to whole blocks, and 64 for each block), 16-byte aligned. Its first 4 KB must be zero
// before the first call that uses it, and each call leaves them so; calls that share a workspace
// must be ordered by their stream.
#ifndef INFERSCALE_OPS_TOPK_TOPK_CUDA_H_
#define INFERSCALE_OPS_TOPK_TOPK_CUDA_H_

#include <cstdint>

#include "ops/cuda/plugin.h"

struct CUstream_st;  // cudaStream_t points to it

namespace inferscale::cuda {

int LaunchTopK(const PluginTopK& topk, CUstream_st* stream);
// Of the current device. 0 if it cannot be asked.
uint64_t TopKWorkspace(const PluginTopK& topk);

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_TOPK_TOPK_CUDA_H_
