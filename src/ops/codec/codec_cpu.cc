#include <algorithm>
#include <cmath>
#include <type_traits>

#include "ops/codec/check.h"
#include "ops/codec/codec.h"
#include "ops/codec/quantise_rows.h"
#include "ops/element.h"
#include "ops/move_rows.h"

namespace inferscale {

Result<uint64_t> Quantise(const FactKvView& from, const MutableFactKvView& to) {
  INFERSCALE_TRY(CheckCodec(from, to));
  const KvShape& shape = to.shape;
  QuantiseJob job;
  job.from_dtype = from.shape.dtype;
  job.to_dtype = shape.dtype;
  uint64_t clamped = 0;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    job.from = from.K(layer);
    job.to = to.K(layer);
    job.rows = to.tokens;
    job.dims = size_t{shape.kv_heads} * shape.k_dim;
    clamped += QuantiseByChannel(job, to.KeyScales(layer));
    job.from = from.V(layer);
    job.to = to.V(layer);
    job.rows = size_t{to.tokens} * shape.kv_heads;
    job.dims = shape.v_dim;
    QuantiseByRow(job, to.VScales(layer));
  }
  return clamped;
}

Status Dequantise(const FactKvView& from, const MutableFactKvView& to) {
  INFERSCALE_TRY(CheckCodec(to, from));
  const KvShape& shape = to.shape;
  MoveJob job;
  job.tokens = to.tokens;
  job.heads = shape.kv_heads;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (const bool is_k : {true, false}) {
      job.dims = is_k ? shape.k_dim : shape.v_dim;
      const auto rows = [&](const auto& record) {
        const auto head = static_cast<int64_t>(job.dims * DtypeSize(record.shape.dtype));
        using Byte = std::remove_pointer_t<decltype(record.data)>;
        return Rows<Byte>{is_k ? record.K(layer) : record.V(layer), head * shape.kv_heads, head,
                          record.shape.dtype};
      };
      job.from = rows(from);
      job.to = rows(to);
      job.channel_scales = is_k ? from.KeyScales(layer) : nullptr;
      job.row_scales = is_k ? nullptr : from.VScales(layer);
      MoveRows(job);
    }
  }
  return {};
}

Status GrowKeyMaxima(const FactKvView& record, std::span<float> maxima) {
  const KvShape& shape = record.shape;
  INFERSCALE_TRY(shape.Validate());
  if (IsQuantised(shape.dtype) || maxima.size() != shape.KeyScales()) {
    return Fail(Code::kInvalid, "codec: {} maxima for keys of {}", maxima.size(), shape.ToString());
  }
  const size_t channels = size_t{shape.kv_heads} * shape.k_dim;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    float* const largest = maxima.data() + layer * channels;
    for (size_t i = 0; i < record.tokens * channels; ++i) {
      const auto value = std::abs(static_cast<float>(ReadElement(record.K(layer), shape.dtype, i)));
      if (std::isfinite(value)) largest[i % channels] = std::max(largest[i % channels], value);
    }
  }
  return {};
}

}  // namespace inferscale
