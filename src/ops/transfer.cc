#include "ops/transfer.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <system_error>
#include <thread>

#include "ops/move_rows.h"

namespace inferscale {

namespace {

// A piece of work: so few tokens that their rotations stay in the L1 cache while all layers pass.
constexpr uint32_t kChunkTokens = 32;

// Below this a second thread costs more than it saves.
constexpr size_t kBytesPerThread = size_t{4} << 20;

struct Chunk {
  const TransferSpan* item;
  uint32_t first;  // token inside the span
  uint32_t tokens;
};

// Tokens of a chunk whose slots follow each other within a page.
struct Run {
  uint32_t first;  // token inside the chunk
  uint32_t tokens;
  int64_t slot;
};

Status CheckSpan(const TransferSpan& item, const KvShape& first) {
  const FactKvView& record = item.record;
  const CacheSpan& span = item.span;
  if (KvShape same = record.shape; (same.dtype = first.dtype, same != first)) {
    return Fail(Code::kInvalid, "a record is {}, another {}", record.shape.ToString(),
                first.ToString());
  }
  INFERSCALE_TRY(record.shape.Validate());
  if (uint64_t{span.record_token} + span.tokens > record.tokens) {
    return Fail(Code::kInvalid, "tokens {} to {} of a record of {}", span.record_token,
                uint64_t{span.record_token} + span.tokens, record.tokens);
  }
  if (span.tokens == 0) return {};
  if (record.data == nullptr) return Fail(Code::kInvalid, "a record has no data");
  if (IsQuantised(record.shape.dtype)) {
    if (item.writable != nullptr) {
      return Fail(Code::kInvalid, "a capture into a record of {}: quantise afterwards",
                  DtypeName(record.shape.dtype));
    }
    if (record.key_scales == nullptr) {
      return Fail(Code::kInvalid, "a record of {} has no key scales",
                  DtypeName(record.shape.dtype));
    }
  }
  const int64_t last_position = int64_t{span.position} + span.tokens - 1;
  if (span.position < 0 || last_position > std::numeric_limits<int32_t>::max()) {
    return Fail(Code::kInvalid, "position {} of {} tokens is out of range", span.position,
                span.tokens);
  }
  if (!span.slots.empty() && span.slots.size() != span.tokens) {
    return Fail(Code::kInvalid, "{} slots for {} tokens", span.slots.size(), span.tokens);
  }
  const int64_t lowest = span.slots.empty()
                             ? span.first_slot
                             : *std::min_element(span.slots.begin(), span.slots.end());
  if (lowest < 0) return Fail(Code::kInvalid, "slot {} is negative", lowest);
  return {};
}

// Of tables with values of their own.
Status CheckPositions(const RopeTable& table, std::span<const TransferSpan> spans) {
  for (const auto& [record, writable, span] : spans) {
    if (span.tokens != 0 &&
        static_cast<uint64_t>(span.position) + span.tokens > table.positions()) {
      return Fail(Code::kInvalid, "positions {} to {}, RoPE is known up to {}", span.position,
                  static_cast<uint64_t>(span.position) + span.tokens, table.positions());
    }
  }
  return {};
}

Status CheckRopes(const RopeTables& ropes, const KvShape& shape) {
  if (ropes.layer_table.size() != shape.layers) {
    return Fail(Code::kInvalid, "RoPE tables for {} layers, records with {}",
                ropes.layer_table.size(), shape.layers);
  }
  for (const uint8_t index : ropes.layer_table) {
    if (index >= ropes.tables.size()) {
      return Fail(Code::kInvalid, "RoPE table {} of {}", index, ropes.tables.size());
    }
    const RopeSpec& spec = ropes.tables[index].spec();
    if (spec.kind != RopeKind::kNone && spec.head_dim != shape.k_dim) {
      return Fail(Code::kInvalid, "RoPE for heads of {} dims, records with {}", spec.head_dim,
                  shape.k_dim);
    }
  }
  return {};
}

std::vector<Chunk> CutIntoChunks(std::span<const TransferSpan> spans) {
  std::vector<Chunk> chunks;
  for (const TransferSpan& item : spans) {
    for (uint32_t first = 0; first < item.span.tokens; first += kChunkTokens) {
      chunks.push_back({&item, first, std::min(kChunkTokens, item.span.tokens - first)});
    }
  }
  return chunks;
}

// One thread's hands: moves chunk after chunk, keeping its buffers.
class Mover {
 public:
  Mover(const RopeTables& ropes, const CacheLayout& cache, Direction direction)
      : ropes_(ropes), cache_(cache), direction_(direction), rotations_(ropes.tables.size()) {}

  void Move(const Chunk& chunk) {
    const FactKvView& record = chunk.item->record;
    const CacheSpan& span = chunk.item->span;
    for (size_t i = 0; i < ropes_.tables.size(); ++i) {
      rotations_[i].Fill(ropes_.tables[i], span.position + static_cast<int32_t>(chunk.first),
                         chunk.tokens, direction_ == Direction::kCapture);
    }
    FindRuns(chunk);
    const uint32_t first = span.record_token + chunk.first;
    const bool quantised = IsQuantised(record.shape.dtype);
    for (uint32_t layer = 0; layer < record.shape.layers; ++layer) {
      if (cache_.k_base[layer] == nullptr) continue;
      const size_t table = ropes_.layer_table[layer];
      const auto offset_of = [&](const std::byte* half, size_t row_bytes) {
        return half - record.data + static_cast<ptrdiff_t>(first * row_bytes);
      };
      const ptrdiff_t k = offset_of(record.K(layer), record.shape.KRowBytes());
      const ptrdiff_t v = offset_of(record.V(layer), record.shape.VRowBytes());
      for (const Run& run : runs_) {
        MoveJob job = Job(*chunk.item, k, record.shape.k_dim, cache_.k_base[layer], cache_.k, run);
        job.kind = ropes_.tables[table].spec().kind;
        job.rotary_dims = 2 * ropes_.tables[table].pairs();
        job.rotations = &rotations_[table];
        job.first_rotation = run.first;
        if (quantised) job.channel_scales = record.KeyScales(layer);
        MoveRows(job);
      }
      for (const Run& run : runs_) {
        MoveJob job = Job(*chunk.item, v, record.shape.v_dim, cache_.v_base[layer], cache_.v, run);
        if (quantised) {
          const size_t row = size_t{first} + run.first;
          job.row_scales = record.VScales(layer) + row * record.shape.kv_heads * sizeof(float);
        }
        MoveRows(job);
      }
    }
  }

 private:
  void FindRuns(const Chunk& chunk) {
    runs_.clear();
    for (uint32_t t = 0; t < chunk.tokens; ++t) {
      const int64_t slot = SlotOf(chunk.item->span, chunk.first + t);
      const bool new_page = cache_.page_tokens != 0 && slot % cache_.page_tokens == 0;
      if (!runs_.empty() && slot == runs_.back().slot + runs_.back().tokens && !new_page) {
        ++runs_.back().tokens;
      } else {
        runs_.push_back({t, 1, slot});
      }
    }
  }

  // A run's rows of `dims` elements, between the record at `offset` (of the chunk) and the cache.
  MoveJob Job(const TransferSpan& item, ptrdiff_t offset, uint32_t dims, std::byte* base,
              const CacheStrides& strides, const Run& run) const {
    const KvShape& shape = item.record.shape;
    const auto head = static_cast<int64_t>(dims * DtypeSize(shape.dtype));
    const int64_t token = head * shape.kv_heads;
    offset += run.first * token;
    std::byte* slot = base + SlotOffset(cache_, strides, run.slot);
    MoveJob job;
    job.tokens = run.tokens;
    job.heads = shape.kv_heads;
    job.dims = dims;
    if (direction_ == Direction::kInject) {
      job.from = {item.record.data + offset, token, head, shape.dtype};
      job.to = {slot, strides.token, strides.head, cache_.dtype};
    } else {
      job.from = {slot, strides.token, strides.head, cache_.dtype};
      job.to = {item.writable + offset, token, head, shape.dtype};
    }
    return job;
  }

  const RopeTables& ropes_;
  const CacheLayout& cache_;
  const Direction direction_;
  std::vector<Rotations> rotations_;
  std::vector<Run> runs_;
};

}  // namespace

Status CheckTransfer(std::span<const TransferSpan> spans, const RopeTables& ropes,
                     const CacheLayout& cache, int threads) {
  if (threads < 1) return Fail(Code::kInvalid, "{} threads", threads);
  if (spans.empty()) return {};
  const KvShape& shape = spans.front().record.shape;
  for (const TransferSpan& item : spans) INFERSCALE_TRY(CheckSpan(item, shape));
  if (cache.k_base.size() != shape.layers || cache.v_base.size() != shape.layers) {
    return Fail(Code::kInvalid, "a cache of {}/{} layers, records with {}", cache.k_base.size(),
                cache.v_base.size(), shape.layers);
  }
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    if ((cache.k_base[layer] == nullptr) != (cache.v_base[layer] == nullptr)) {
      return Fail(Code::kInvalid, "a cache with one half of layer {}", layer);
    }
  }
  if (IsQuantised(cache.dtype)) {
    return Fail(Code::kInvalid, "a cache of {}", DtypeName(cache.dtype));
  }
  INFERSCALE_TRY(CheckRopes(ropes, shape));
  // All tables are evaluated, also those that no layer uses.
  for (const RopeTable& table : ropes.tables) INFERSCALE_TRY(CheckPositions(table, spans));
  return {};
}

void Transfer(std::span<const TransferSpan> spans, const RopeTables& ropes,
              const CacheLayout& cache, Direction direction, int threads) {
  const std::vector<Chunk> chunks = CutIntoChunks(spans);
  size_t bytes = 0;
  for (const Chunk& chunk : chunks) bytes += chunk.tokens * chunk.item->record.shape.TokenBytes();

  std::atomic<size_t> next = 0;
  const auto work = [&] {
    Mover mover(ropes, cache, direction);
    for (size_t i = next++; i < chunks.size(); i = next++) mover.Move(chunks[i]);
  };
  std::vector<std::jthread> helpers;
  const size_t helpful =
      std::min({static_cast<size_t>(threads), chunks.size(), bytes / kBytesPerThread});
  while (helpers.size() + 1 < helpful) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // no thread to be had: the others do its share
    }
  }
  work();
}

}  // namespace inferscale
