#include "ops/capture/capture.h"
#include "ops/transfer.h"

namespace inferscale {

Status Capture(std::span<const CaptureSpan> spans, const RopeTables& ropes,
               const CacheLayout& cache, int threads) {
  std::vector<TransferSpan> items;
  items.reserve(spans.size());
  for (const CaptureSpan& item : spans) items.push_back({item.record, item.record.data, item.span});
  INFERSCALE_TRY(CheckTransfer(items, ropes, cache, threads));
  Transfer(items, ropes, cache, Direction::kCapture, threads);
  return {};
}

}  // namespace inferscale
