#include "ops/cuda/transfer_plan.h"

#include <algorithm>

namespace inferscale::cuda {

namespace {

class Planner {
 public:
  explicit Planner(const PluginTransfer& transfer) : transfer_(transfer) {
    params_.cache = *transfer.cache;
    params_.ropes = *transfer.ropes;
    params_.key_scales = transfer.key_scales;
    const uint32_t heads_per_warp = kWarpLanes / (transfer.cache->dim / 16);
    params_.heads_at_once = std::min(transfer.cache->heads, heads_per_warp);
    params_.tokens_at_once = heads_per_warp / params_.heads_at_once;
    // A lane's angles are those of one layer, and serve another one only if all have the same.
    const bool one_step = params_.heads_at_once == transfer.cache->heads;
    params_.layers_at_once = one_step && transfer.ropes->tables == 1 ? 2 : 1;
    const uint32_t heads_of_block = params_.heads_at_once * kItems;
    params_.head_groups =
        one_step ? 1 : (transfer.cache->heads + heads_of_block - 1) / heads_of_block;
    tile_tokens_ = kWarps * params_.tokens_at_once;
  }

  // Takes as many of the span's tokens as fit, and returns how many.
  uint32_t Add(const PluginSpan& span) {
    if (params_.span_count == kMaxSpans || tiles_ == kMaxTiles) return 0;
    const uint32_t page_tokens = params_.cache.page_tokens;
    const uint32_t first_page = span.page_token / page_tokens;
    // Facts that follow each other in a prompt share the list's pages, and often a page.
    if (first_page < run_first_ || first_page > run_first_ + run_pages_ || run_pages_ == 0) {
      run_first_ = first_page;
      run_pages_ = 0;
      run_at_ = page_count_;
    }
    const uint32_t last_page = (span.page_token + span.tokens - 1) / page_tokens;
    while (run_first_ + run_pages_ <= last_page && page_count_ < kMaxPages) {
      params_.pages[page_count_++] = transfer_.pages[run_first_ + run_pages_++];
    }
    const uint64_t page_room =
        uint64_t{run_first_ + run_pages_} * page_tokens - span.page_token;  // >= 0
    const uint64_t tile_room = uint64_t{kMaxTiles - tiles_} * tile_tokens_;
    const auto tokens =
        static_cast<uint32_t>(std::min({uint64_t{span.tokens}, page_room, tile_room}));
    if (tokens == 0) return 0;
    params_.spans[params_.span_count++] = {
        .record = static_cast<std::byte*>(span.record),
        .record_tokens = span.record_tokens,
        .first = span.first,
        .tokens = tokens,
        .position = span.position,
        .page_token = span.page_token - run_first_ * page_tokens + run_at_ * page_tokens,
        .first_tile = tiles_};
    tiles_ += (tokens + tile_tokens_ - 1) / tile_tokens_;
    return tokens;
  }

  const TransferParams& params() const { return params_; }
  uint32_t tiles() const { return tiles_; }

  void Restart() {
    params_.span_count = 0;
    tiles_ = page_count_ = run_first_ = run_pages_ = run_at_ = 0;
  }

 private:
  static constexpr uint32_t kMaxTiles = 65535;  // of a grid's second dimension

  const PluginTransfer& transfer_;
  TransferParams params_ = {};
  uint32_t tile_tokens_ = 0;
  uint32_t tiles_ = 0;
  uint32_t page_count_ = 0;
  // The last pages of params_.pages that follow each other in transfer_.pages too.
  uint32_t run_first_ = 0, run_pages_ = 0, run_at_ = 0;
};

}  // namespace

int ForEachLaunch(const PluginTransfer& transfer,
                  const std::function<int(const TransferParams&, uint32_t)>& launch) {
  Planner planner(transfer);
  for (uint32_t i = 0; i < transfer.span_count; ++i) {
    PluginSpan left = transfer.spans[i];
    while (left.tokens > 0) {
      const uint32_t taken = planner.Add(left);
      left.first += taken;
      left.position += static_cast<int32_t>(taken);
      left.page_token += taken;
      left.tokens -= taken;
      if (left.tokens == 0) break;
      if (const int status = launch(planner.params(), planner.tiles()); status != 0) return status;
      planner.Restart();
    }
  }
  return planner.tiles() == 0 ? 0 : launch(planner.params(), planner.tiles());
}

}  // namespace inferscale::cuda
