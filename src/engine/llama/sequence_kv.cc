#include "engine/llama/sequence_kv.h"

#include <algorithm>
#include <cstring>

#include "ops/capture/capture.h"

namespace inferscale {

SequenceKv::SequenceKv(const KvShape& shape, Dtype cache, uint32_t streams, const LayerRopes& ropes,
                       int threads)
    : shape_(shape),
      cache_shape_(shape),
      streams_(streams),
      tables_(ropes.specs.begin(), ropes.specs.end()),
      layer_table_(ropes.layer_spec),
      threads_(threads) {
  cache_shape_.dtype = cache;
}

Result<ByteSpan> SequenceKv::ReadState(llama_context* context, llama_seq_id seq) {
  const size_t size = llama_state_seq_get_size(context, seq);
  MutableByteSpan bytes = state_.Get(size);
  const size_t read =
      llama_state_seq_get_data(context, reinterpret_cast<uint8_t*>(bytes.data()), size, seq);
  if (read != size) {
    return Fail(Code::kInternal, "llama.cpp gave {} bytes of a state of {}", read, size);
  }
  return bytes;
}

Status SequenceKv::FillBlob(llama_context* context, llama_seq_id seq, uint32_t held,
                            std::span<const SequenceSpan> spans, MutableByteSpan& blob) {
  StateRows old;
  if (held > 0) {
    INFERSCALE_ASSIGN(const ByteSpan state, ReadState(context, seq));
    INFERSCALE_ASSIGN(old, ParseStateBlob(state));
    if (old.positions.size() != held || old.dtype != cache_shape_.dtype ||
        old.k_row_bytes != cache_shape_.KRowBytes() ||
        old.v_row_bytes != cache_shape_.VRowBytes() || old.layers != cache_shape_.layers) {
      return Fail(Code::kInternal, "a sequence of {} tokens has a state of {} rows", held,
                  old.positions.size());
    }
  }

  std::vector<int32_t> positions = old.positions;
  std::vector<InjectSpan> work;
  work.reserve(spans.size());
  for (const SequenceSpan& span : spans) {
    work.push_back({span.record,
                    {.record_token = span.record_token,
                     .tokens = span.tokens,
                     .position = span.position,
                     .first_slot = static_cast<int64_t>(positions.size()),
                     .slots = {}}});
    for (uint32_t i = 0; i < span.tokens; ++i) {
      positions.push_back(span.position + static_cast<int32_t>(i));
    }
  }

  blob = blob_.Get(StateBlobSize(cache_shape_, streams_, positions.size()));
  const StateRows rows = WriteStateBlob(cache_shape_, streams_, positions, blob);
  for (uint32_t layer = 0; layer < old.layers; ++layer) {
    std::memcpy(rows.k[layer], old.k[layer], held * rows.k_row_bytes);
    std::memcpy(rows.v[layer], old.v[layer], held * rows.v_row_bytes);
  }
  return ::inferscale::Inject(work, Tables(), rows.Layout(cache_shape_), threads_);
}

Status SequenceKv::Inject(llama_context* context, llama_seq_id seq, uint32_t held,
                          std::span<const SequenceSpan> spans) {
  MutableByteSpan blob;
  Status status = FillBlob(context, seq, held, spans, blob);
  if (status) {
    const size_t taken = llama_state_seq_set_data(
        context, reinterpret_cast<const uint8_t*>(blob.data()), blob.size(), seq);
    if (taken == blob.size()) return {};
    status = Fail(Code::kInternal, "llama.cpp took {} bytes of a state of {}", taken, blob.size());
  }
  llama_memory_seq_rm(llama_get_memory(context), seq, -1, -1);
  return status;
}

Status SequenceKv::Capture(llama_context* context, llama_seq_id seq,
                           std::span<const SequenceCapture> captures) {
  INFERSCALE_ASSIGN(const ByteSpan state, ReadState(context, seq));
  INFERSCALE_ASSIGN(const StateRows rows, ParseStateBlob(state));
  if (rows.positions.empty()) return Fail(Code::kNotFound, "the sequence is empty");

  const int32_t last = *std::max_element(rows.positions.begin(), rows.positions.end());
  std::vector<int64_t> slot_of(static_cast<size_t>(last) + 1, -1);
  for (size_t row = 0; row < rows.positions.size(); ++row) {
    slot_of[static_cast<size_t>(rows.positions[row])] = static_cast<int64_t>(row);
  }
  std::vector<CaptureSpan> work;
  work.reserve(captures.size());
  for (const SequenceCapture& capture : captures) {
    const auto first = static_cast<size_t>(capture.position);
    const bool held = first + capture.record.tokens <= slot_of.size() &&
                      std::all_of(slot_of.begin() + capture.position,
                                  slot_of.begin() + capture.position + capture.record.tokens,
                                  [](int64_t slot) { return slot >= 0; });
    if (!held) {
      return Fail(Code::kNotFound, "the sequence does not hold positions {} to {}",
                  capture.position, first + capture.record.tokens);
    }
    work.push_back({capture.record,
                    {.record_token = 0,
                     .tokens = capture.record.tokens,
                     .position = capture.position,
                     .first_slot = 0,
                     .slots = std::span(slot_of).subspan(first, capture.record.tokens)}});
  }
  return ::inferscale::Capture(work, Tables(), rows.Layout(cache_shape_), threads_);
}

}  // namespace inferscale
