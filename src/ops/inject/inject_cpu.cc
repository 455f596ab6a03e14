#include "ops/inject/inject.h"
#include "ops/transfer.h"

namespace inferscale {

Status Inject(std::span<const InjectSpan> spans, const RopeTables& ropes, const CacheLayout& cache,
              int threads) {
  std::vector<TransferSpan> items;
  items.reserve(spans.size());
  for (const InjectSpan& item : spans) items.push_back({item.record, nullptr, item.span});
  INFERSCALE_TRY(CheckTransfer(items, ropes, cache, threads));
  Transfer(items, ropes, cache, Direction::kInject, threads);
  return {};
}

}  // namespace inferscale
