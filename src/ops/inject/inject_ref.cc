#include "ops/element.h"
#include "ops/inject/inject.h"
#include "ops/transfer.h"

namespace inferscale {

namespace {

// A head's dims, rotated by `table` to `position`.
void RotateHead(const RopeTable& table, int32_t position, std::vector<double>& head) {
  const uint32_t pairs = table.pairs();
  std::vector<float> cos(pairs), sin(pairs);
  table.Fill(position, cos, sin);
  for (uint32_t i = 0; i < pairs; ++i) {
    const bool neox = table.spec().kind == RopeKind::kNeox;
    double& a = head[neox ? i : 2 * i];
    double& b = head[neox ? i + pairs : 2 * i + 1];
    const double x = a, y = b;
    a = x * cos[i] - y * sin[i];
    b = x * sin[i] + y * cos[i];
  }
}

}  // namespace

Status InjectReference(std::span<const InjectSpan> spans, const RopeTables& ropes,
                       const CacheLayout& cache) {
  std::vector<TransferSpan> items;
  for (const InjectSpan& item : spans) items.push_back({item.record, nullptr, item.span});
  INFERSCALE_TRY(CheckTransfer(items, ropes, cache, 1));

  for (const auto& [record, span] : spans) {
    const KvShape& shape = record.shape;
    for (uint32_t t = 0; t < span.tokens; ++t) {
      const size_t token = span.record_token + t;
      const int64_t slot = SlotOf(span, t);
      for (uint32_t l = 0; l < shape.layers; ++l) {
        if (cache.k_base[l] == nullptr) continue;
        for (uint32_t h = 0; h < shape.kv_heads; ++h) {
          std::byte* k = cache.k_base[l] + SlotOffset(cache, cache.k, slot) + h * cache.k.head;
          std::vector<double> head(shape.k_dim);
          for (uint32_t d = 0; d < shape.k_dim; ++d) {
            head[d] = ReadK(record, l, token, h, d);
          }
          RotateHead(ropes.tables[ropes.layer_table[l]], span.position + static_cast<int32_t>(t),
                     head);
          for (uint32_t d = 0; d < shape.k_dim; ++d) WriteElement(k, cache.dtype, d, head[d]);

          std::byte* v = cache.v_base[l] + SlotOffset(cache, cache.v, slot) + h * cache.v.head;
          for (uint32_t d = 0; d < shape.v_dim; ++d) {
            WriteElement(v, cache.dtype, d, ReadV(record, l, token, h, d));
          }
        }
      }
    }
  }
  return {};
}

}  // namespace inferscale
