#include "ops/capture/capture.h"
#include "ops/element.h"
#include "ops/transfer.h"

namespace inferscale {

namespace {

// A head's dims with the rotation to `position` taken off.
void UnrotateHead(const RopeTable& table, int32_t position, std::vector<double>& head) {
  const uint32_t pairs = table.pairs();
  std::vector<float> cos(pairs), sin(pairs);
  table.Fill(position, cos, sin);
  for (uint32_t i = 0; i < pairs; ++i) {
    const bool neox = table.spec().kind == RopeKind::kNeox;
    double& a = head[neox ? i : 2 * i];
    double& b = head[neox ? i + pairs : 2 * i + 1];
    const double x = a, y = b, c = cos[i], s = sin[i];
    a = (x * c + y * s) / (c * c + s * s);
    b = (y * c - x * s) / (c * c + s * s);
  }
}

}  // namespace

Status CaptureReference(std::span<const CaptureSpan> spans, const RopeTables& ropes,
                        const CacheLayout& cache) {
  std::vector<TransferSpan> items;
  for (const CaptureSpan& item : spans) items.push_back({item.record, item.record.data, item.span});
  INFERSCALE_TRY(CheckTransfer(items, ropes, cache, 1));

  for (const auto& [record, span] : spans) {
    const KvShape& shape = record.shape;
    for (uint32_t t = 0; t < span.tokens; ++t) {
      const size_t token = span.record_token + t;
      const int64_t slot = SlotOf(span, t);
      for (uint32_t l = 0; l < shape.layers; ++l) {
        if (cache.k_base[l] == nullptr) continue;
        for (uint32_t h = 0; h < shape.kv_heads; ++h) {
          const std::byte* k =
              cache.k_base[l] + SlotOffset(cache, cache.k, slot) + h * cache.k.head;
          std::vector<double> head(shape.k_dim);
          for (uint32_t d = 0; d < shape.k_dim; ++d) head[d] = ReadElement(k, cache.dtype, d);
          UnrotateHead(ropes.tables[ropes.layer_table[l]], span.position + static_cast<int32_t>(t),
                       head);
          for (uint32_t d = 0; d < shape.k_dim; ++d) {
            WriteElement(record.K(l), shape.dtype, (token * shape.kv_heads + h) * shape.k_dim + d,
                         head[d]);
          }

          const std::byte* v =
              cache.v_base[l] + SlotOffset(cache, cache.v, slot) + h * cache.v.head;
          for (uint32_t d = 0; d < shape.v_dim; ++d) {
            WriteElement(record.V(l), shape.dtype, (token * shape.kv_heads + h) * shape.v_dim + d,
                         ReadElement(v, cache.dtype, d));
          }
        }
      }
    }
  }
  return {};
}

}  // namespace inferscale
