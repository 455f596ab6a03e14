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

// The rows `kept` of `from` to the beginning of `to`.
void CopyKept(const StateRows& from, std::span<const size_t> kept, const StateRows& to) {
  const bool transposed = from.form.transposed_values;
  const size_t element = DtypeSize(from.dtype);
  const size_t dims = from.v_row_bytes / element;
  const auto copy_run = [&](size_t first, size_t into, size_t rows) {
    for (uint32_t layer = 0; layer < from.layers; ++layer) {
      std::memcpy(to.k[layer] + into * from.k_row_bytes, from.k[layer] + first * from.k_row_bytes,
                  rows * from.k_row_bytes);
      if (!transposed) {
        std::memcpy(to.v[layer] + into * from.v_row_bytes, from.v[layer] + first * from.v_row_bytes,
                    rows * from.v_row_bytes);
        continue;
      }
      for (size_t dim = 0; dim < dims; ++dim) {
        std::memcpy(to.v[layer] + (dim * to.positions.size() + into) * element,
                    from.v[layer] + (dim * from.positions.size() + first) * element,
                    rows * element);
      }
    }
  };
  for (size_t i = 0; i < kept.size();) {
    size_t end = i + 1;
    while (end < kept.size() && kept[end] == kept[end - 1] + 1) ++end;
    copy_run(kept[i], i, end - i);
    i = end;
  }
}

}  // namespace

SequenceKv::SequenceKv(ModelKv model, Dtype cache, const StateForm& form, int threads)
    : model_(std::move(model)),
      dtype_(cache),
      form_(form),
      tables_(model_.ropes.specs.begin(), model_.ropes.specs.end()),
      threads_(threads) {}

// One StateRows for each of the model's caches.
Result<std::vector<StateRows>> SequenceKv::ReadState(llama_context* context, llama_seq_id seq) {
  const size_t size = llama_state_seq_get_size(context, seq);
  MutableByteSpan bytes = state_.Get(size);
  const size_t read =
      llama_state_seq_get_data(context, reinterpret_cast<uint8_t*>(bytes.data()), size, seq);
  if (read != size) {
    return Fail(Code::kInternal, "llama.cpp gave {} bytes of a state of {}", read, size);
  }
  INFERSCALE_ASSIGN(auto state, ParseStateBlob(bytes, model_.caches.size()));
  for (size_t cache = 0; cache < state.size(); ++cache) {
    if (!state[cache].positions.empty()) INFERSCALE_TRY(CheckState(state[cache], cache));
  }
  return state;
}

Status SequenceKv::CheckState(const StateRows& rows, size_t cache) const {
  const KvShape shape = model_.ShapeOf(cache, dtype_);
  if (rows.form != form_ || rows.dtype != dtype_ || rows.k_row_bytes != shape.KRowBytes() ||
      rows.v_row_bytes != shape.VRowBytes() || rows.layers != shape.layers) {
    return Fail(Code::kInternal, "a state of {} layers in {} with {} and {} bytes a row, not {}",
                rows.layers, DtypeName(rows.dtype), rows.k_row_bytes, rows.v_row_bytes,
                shape.ToString());
  }
  return {};
}

std::vector<std::byte*> SequenceKv::ValueRows(size_t count, uint32_t layers) {
  const size_t layer_bytes = count * model_.ShapeOf(0, dtype_).VRowBytes();
  std::byte* data = values_.Get(layer_bytes * layers).data();
  std::vector<std::byte*> bases;
  for (uint32_t layer = 0; layer < layers; ++layer) bases.push_back(data + layer * layer_bytes);
  return bases;
}

// Calls work(layer) on as many threads as moving `bytes` is worth.
template <typename Work>
void SequenceKv::ForEachLayer(uint32_t layers, size_t bytes, const Work& work) const {
  std::atomic<uint32_t> next = 0;
  const auto loop = [&] {
    for (uint32_t i = next++; i < layers; i = next++) work(i);
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

// Leaves out what no token after the spans sees.
SequenceKv::Growth SequenceKv::Grow(size_t cache, const StateRows& old,
                                    std::span<const SequenceSpan> spans,
                                    std::vector<int32_t>& positions) const {
  int32_t end = 0;
  for (const int32_t position : old.positions) end = std::max(end, position + 1);
  for (const SequenceSpan& span : spans) {
    end = std::max(end, span.position + static_cast<int32_t>(span.tokens));
  }
  const int32_t first_seen = model_.FirstSeen(cache, end);
  Growth growth;
  for (size_t row = 0; row < old.positions.size(); ++row) {
    if (old.positions[row] < first_seen) continue;
    growth.kept.push_back(row);
    positions.push_back(old.positions[row]);
  }
  growth.added.reserve(spans.size());
  for (const SequenceSpan& span : spans) {
    const int32_t unseen = std::max(0, first_seen - span.position);
    if (static_cast<uint32_t>(unseen) >= span.tokens) continue;
    const auto skipped = static_cast<uint32_t>(unseen);
    growth.added.push_back({span.record,
                            {.record_token = span.record_token + skipped,
                             .tokens = span.tokens - skipped,
                             .position = span.position + unseen,
                             .first_slot = growth.added_rows,
                             .slots = {}}});
    for (uint32_t i = skipped; i < span.tokens; ++i) {
      positions.push_back(span.position + static_cast<int32_t>(i));
    }
    growth.added_rows += span.tokens - skipped;
  }
  return growth;
}

Status SequenceKv::InjectInto(size_t cache, const Growth& growth, const StateRows& rows) {
  const size_t held = growth.kept.size();
  const bool transposed = form_.transposed_values;
  StateRows added = rows;
  for (uint32_t layer = 0; layer < rows.layers; ++layer) {
    added.k[layer] += held * rows.k_row_bytes;
    if (!transposed) added.v[layer] += held * rows.v_row_bytes;
  }
  if (transposed) added.v = ValueRows(growth.added_rows, rows.layers);
  const std::vector<std::byte*> k = model_.Place(cache, added.k);
  const std::vector<std::byte*> v = model_.Place(cache, added.v);
  INFERSCALE_TRY(
      ::inferscale::Inject(growth.added, Tables(), added.Layout(model_.shape, k, v), threads_));
  if (transposed) {
    const size_t element = DtypeSize(dtype_);
    ForEachLayer(rows.layers, growth.added_rows * rows.v_row_bytes * rows.layers,
                 [&](uint32_t layer) {
                   Transpose({added.v[layer], rows.v_row_bytes},
                             {rows.v[layer] + held * element, rows.positions.size() * element},
                             growth.added_rows, rows.v_row_bytes / element);
                 });
  }
  return {};
}

Status SequenceKv::FillBlob(llama_context* context, llama_seq_id seq, uint32_t held,
                            std::span<const SequenceSpan> spans, MutableByteSpan& blob) {
  std::vector<StateRows> old(model_.caches.size());
  if (held > 0) {
    INFERSCALE_ASSIGN(old, ReadState(context, seq));
    if (old.front().positions.size() != held) {
      return Fail(Code::kInternal, "a sequence of {} tokens has a state of {} rows", held,
                  old.front().positions.size());
    }
  }
  std::vector<Growth> growths;
  std::vector<StatePart> parts;
  for (size_t cache = 0; cache < old.size(); ++cache) {
    parts.push_back({model_.ShapeOf(cache, dtype_), {}});
    growths.push_back(Grow(cache, old[cache], spans, parts.back().positions));
  }
  blob = blob_.Get(StateBlobSize(parts, form_));
  const std::vector<StateRows> rows = WriteStateBlob(parts, form_, blob);
  for (size_t cache = 0; cache < old.size(); ++cache) {
    CopyKept(old[cache], growths[cache].kept, rows[cache]);
    INFERSCALE_TRY(InjectInto(cache, growths[cache], rows[cache]));
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

Status SequenceKv::CaptureFrom(size_t cache, StateRows& rows,
                               std::span<const SequenceCapture> captures) {
  const int32_t last = *std::max_element(rows.positions.begin(), rows.positions.end());
  std::vector<int64_t> slot_of(static_cast<size_t>(last) + 1, -1);
  for (size_t row = 0; row < rows.positions.size(); ++row) {
    slot_of[static_cast<size_t>(rows.positions[row])] = static_cast<int64_t>(row);
  }
  std::vector<CaptureSpan> work;
  work.reserve(captures.size());
  for (const SequenceCapture& capture : captures) {
    const auto first = static_cast<size_t>(capture.position);
    const bool held = first + capture.tokens <= slot_of.size() &&
                      std::all_of(slot_of.begin() + capture.position,
                                  slot_of.begin() + capture.position + capture.tokens,
                                  [](int64_t slot) { return slot >= 0; });
    if (!held) {
      return Fail(Code::kNotFound, "the sequence does not hold positions {} to {}",
                  capture.position, first + capture.tokens);
    }
    work.push_back({capture.record,
                    {.record_token = capture.record_token,
                     .tokens = capture.tokens,
                     .position = capture.position,
                     .first_slot = 0,
                     .slots = std::span(slot_of).subspan(first, capture.tokens)}});
  }
  if (form_.transposed_values) {
    const size_t count = rows.positions.size();
    const size_t element = DtypeSize(rows.dtype);
    const std::vector<std::byte*> transposed = std::exchange(rows.v, ValueRows(count, rows.layers));
    ForEachLayer(rows.layers, count * rows.v_row_bytes * rows.layers, [&](uint32_t layer) {
      Transpose({transposed[layer], count * element}, {rows.v[layer], rows.v_row_bytes},
                rows.v_row_bytes / element, count);
    });
  }
  const std::vector<std::byte*> k = model_.Place(cache, rows.k);
  const std::vector<std::byte*> v = model_.Place(cache, rows.v);
  return ::inferscale::Capture(work, Tables(), rows.Layout(model_.shape, k, v), threads_);
}

Status SequenceKv::Capture(llama_context* context, llama_seq_id seq,
                           std::span<const SequenceCapture> captures) {
  INFERSCALE_ASSIGN(std::vector<StateRows> state, ReadState(context, seq));
  for (size_t cache = 0; cache < state.size(); ++cache) {
    if (state[cache].positions.empty()) return Fail(Code::kNotFound, "the sequence is empty");
    INFERSCALE_TRY(CaptureFrom(cache, state[cache], captures));
  }
  return {};
}

}  // namespace inferscale
