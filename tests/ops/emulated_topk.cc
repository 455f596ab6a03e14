#include "emulated_topk.h"

#include <memory>

#include "ops/cuda/emulate.h"
#include "ops/topk/topk_cuda.cuh"

namespace inferscale {

namespace {

using namespace cuda;

constexpr uint32_t kThreads = 64, kRows = 4;  // small blocks: switching threads is what costs

template <bool kHalf, uint32_t kMaxSearches>
void EmulateLaunch(const PluginTopK& topk, std::span<const PluginSearch> searches, uint32_t first,
                   const TopKDevice& device, uint32_t seed) {
  const auto params = std::make_unique<TopKParams<kMaxSearches>>(
      MakeTopKParams<kMaxSearches>(topk, searches, first, device));
  Emulate({.grid = {params->blocks},
           .block = {kThreads},
           .dynamic_shared = TopKSharedBytes(topk.dims, kHalf),
           .seed = seed},
          [&] { TopKBody<kHalf, kThreads, kRows, kMaxSearches>(*params).Run(); });
}

}  // namespace

int EmulateTopK(const PluginTopK& topk, const TopKDevice& device, uint32_t seed) {
  if (!CanTopK(topk)) return kNoInstance;
  const bool half = static_cast<Dtype>(topk.row_dtype) == Dtype::kF16;
  return ForEachTopKLaunch(topk, [&](std::span<const PluginSearch> searches, uint32_t first) {
    const auto launch = [&]<uint32_t kMaxSearches>() {
      half ? EmulateLaunch<true, kMaxSearches>(topk, searches, first, device, seed)
           : EmulateLaunch<false, kMaxSearches>(topk, searches, first, device, seed);
    };
    searches.size() <= kTopKSmallLaunch ? launch.template operator()<kTopKSmallLaunch>()
                                        : launch.template operator()<kTopKLargeLaunch>();
    return 0;
  });
}

}  // namespace inferscale
