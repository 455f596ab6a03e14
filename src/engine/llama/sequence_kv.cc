#include "engine/llama/sequence_kv.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/llama/transpose.h"
#include "ops/capture/capture.h"

namespace inferscale {

namespace {

// Below this a second thread costs more than it saves.
constexpr size_t kBytesPerThread = size_t{4} << 20;

// All of `from` to the beginning of `to`, which has as many rows or more.
void CopyHeld(const StateRows& from, const StateRows& to) {
  const size_t held = from.positions.size();
  const bool transposed = from.form.transposed_values;
  const size_t element = DtypeSize(from.dtype);
  // Rows of values follow each other; of transposed ones those of one dim do.
  const size_t pieces = transposed ? from.v_row_bytes / element : 1;
  const size_t piece_bytes = held * (transposed ? element : from.v_row_bytes);
  for (uint32_t layer = 0; layer < from.layers; ++layer) {
    std::memcpy(to.k[layer], from.k[layer], held * from.k_row_bytes);
    for (size_t piece = 0; piece < pieces; ++piece) {
      std::memcpy(to.v[layer] + piece * to.positions.size() * element,
                  from.v[layer] + piece * piece_bytes, piece_bytes);
    }
  }
}

}  // namespace

SequenceKv::SequenceKv(const KvShape& shape, Dtype cache, const StateForm& form,
                       const LayerRopes& ropes, int threads)
    : shape_(shape),
      cache_shape_(shape),
      form_(form),
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

Status SequenceKv::CheckState(const StateRows& rows) const {
  if (rows.form != form_ || rows.dtype != cache_shape_.dtype ||
      rows.k_row_bytes != cache_shape_.KRowBytes() ||
      rows.v_row_bytes != cache_shape_.VRowBytes() || rows.layers != cache_shape_.layers) {
    return Fail(Code::kInternal, "a state of {} layers in {} with {} and {} bytes a row, not {}",
                rows.layers, DtypeName(rows.dtype), rows.k_row_bytes, rows.v_row_bytes,
                cache_shape_.ToString());
  }
  return {};
}

std::vector<std::byte*> SequenceKv::ValueRows(size_t count) {
  const size_t layer_bytes = count * cache_shape_.VRowBytes();
  std::byte* data = values_.Get(layer_bytes * cache_shape_.layers).data();
  std::vector<std::byte*> layers;
  for (uint32_t layer = 0; layer < cache_shape_.layers; ++layer) {
    layers.push_back(data + layer * layer_bytes);
  }
  return layers;
}

// Calls work(layer) on as many threads as moving `bytes` is worth.
template <typename Work>
void SequenceKv::ForEachLayer(size_t bytes, const Work& work) const {
  std::atomic<uint32_t> next = 0;
  const auto loop = [&] {
    for (uint32_t i = next++; i < cache_shape_.layers; i = next++) work(i);
  };
  std::vector<std::jthread> helpers;
  const size_t helpful = std::min(static_cast<size_t>(threads_), bytes / kBytesPerThread);
  while (helpers.size() + 1 < helpful) {
    try {
      helpers.emplace_back(loop);
    } catch (const std::system_error&) {
      break;  // no thread to be had: the others do its share
    }
  }
  loop();
}

Status SequenceKv::FillBlob(llama_context* context, llama_seq_id seq, uint32_t held,
                            std::span<const SequenceSpan> spans, MutableByteSpan& blob) {
  StateRows old;
  if (held > 0) {
    INFERSCALE_ASSIGN(const ByteSpan state, ReadState(context, seq));
    INFERSCALE_ASSIGN(old, ParseStateBlob(state));
    INFERSCALE_TRY(CheckState(old));
    if (old.positions.size() != held) {
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
                     .first_slot = static_cast<int64_t>(positions.size() - held),
                     .slots = {}}});
    for (uint32_t i = 0; i < span.tokens; ++i) {
      positions.push_back(span.position + static_cast<int32_t>(i));
    }
  }

  blob = blob_.Get(StateBlobSize(cache_shape_, form_, positions.size()));
  const StateRows rows = WriteStateBlob(cache_shape_, form_, positions, blob);
  CopyHeld(old, rows);
  const size_t count = positions.size() - held;
  StateRows added = rows;
  for (uint32_t layer = 0; layer < rows.layers; ++layer) {
    added.k[layer] += held * rows.k_row_bytes;
    if (!form_.transposed_values) added.v[layer] += held * rows.v_row_bytes;
  }
  if (form_.transposed_values) added.v = ValueRows(count);
  INFERSCALE_TRY(::inferscale::Inject(work, Tables(), added.Layout(cache_shape_), threads_));
  if (form_.transposed_values) {
    const size_t element = DtypeSize(rows.dtype);
    ForEachLayer(count * rows.v_row_bytes * rows.layers, [&](uint32_t layer) {
      Transpose({added.v[layer], rows.v_row_bytes},
                {rows.v[layer] + held * element, positions.size() * element}, count,
                rows.v_row_bytes / element);
    });
  }
  return {};
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
  INFERSCALE_ASSIGN(StateRows rows, ParseStateBlob(state));
  if (rows.positions.empty()) return Fail(Code::kNotFound, "the sequence is empty");
  INFERSCALE_TRY(CheckState(rows));

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
  if (form_.transposed_values) {
    const size_t count = rows.positions.size();
    const size_t element = DtypeSize(rows.dtype);
    const std::vector<std::byte*> transposed = std::exchange(rows.v, ValueRows(count));
    ForEachLayer(count * rows.v_row_bytes * rows.layers, [&](uint32_t layer) {
      Transpose({transposed[layer], count * element}, {rows.v[layer], rows.v_row_bytes},
                rows.v_row_bytes / element, count);
    });
  }
  return ::inferscale::Capture(work, Tables(), rows.Layout(cache_shape_), threads_);
}

}  // namespace inferscale
