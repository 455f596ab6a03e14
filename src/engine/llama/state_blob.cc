#include "engine/llama/state_blob.h"

#include <ggml.h>
#include <llama.h>

#include <cstring>

namespace inferscale {
namespace {

// llama.cpp keeps it to itself (src/llama-context.cpp); the start-up probe notices a change.
constexpr uint32_t kMagic = 0xaf143cd8;
constexpr size_t kHeadBytes = 8;
constexpr size_t kRowMetaBytes = 12;
constexpr size_t kLayerHeadBytes = 12;
constexpr uint32_t kMaxLayers = 4096;
constexpr uint32_t kMaxStreams = 1024;
constexpr bool kHasRotations = LLAMA_STATE_SEQ_VERSION >= 4;

class SpanWriter {
 public:
  explicit SpanWriter(MutableByteSpan out) : out_(out) {}

  template <typename T>
  void Write(T value) {
    std::memcpy(out_.data() + offset_, &value, sizeof(T));
    offset_ += sizeof(T);
  }
  std::byte* Skip(size_t bytes) {
    std::byte* here = out_.data() + offset_;
    offset_ += bytes;
    return here;
  }

 private:
  MutableByteSpan out_;
  size_t offset_ = 0;
};

int32_t GgmlType(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return GGML_TYPE_F32;
    case Dtype::kBF16:
      return GGML_TYPE_BF16;
    case Dtype::kF16:
      return GGML_TYPE_F16;
    case Dtype::kI8:
    case Dtype::kF8E4M3:
      break;  // of stores only
  }
  return GGML_TYPE_COUNT;
}

Result<Dtype> FromGgmlType(int32_t type) {
  switch (type) {
    case GGML_TYPE_F32:
      return Dtype::kF32;
    case GGML_TYPE_F16:
      return Dtype::kF16;
    case GGML_TYPE_BF16:
      return Dtype::kBF16;
    default:
      return Fail(Code::kUnsupported, "state: cache type {} is not f32, f16 or bf16", type);
  }
}

struct LayerHead {
  Dtype dtype = Dtype::kF16;
  uint64_t row_bytes = 0;
};

Result<LayerHead> ReadLayerHead(ByteReader& reader, bool transposed, const char* half,
                                uint32_t layer) {
  const auto type = reader.Read<int32_t>();
  const uint64_t element = transposed ? reader.Read<uint32_t>() : 1;
  const uint64_t count = transposed ? reader.Read<uint32_t>() : reader.Read<uint64_t>();
  if (!reader.ok()) return Fail(Code::kCorrupt, "state: ends before {} of layer {}", half, layer);
  INFERSCALE_ASSIGN(const Dtype dtype, FromGgmlType(type));
  if (transposed && element != DtypeSize(dtype)) {
    return Fail(Code::kCorrupt, "state: {} of layer {} has elements of {} bytes in {}", half, layer,
                element, DtypeName(dtype));
  }
  return LayerHead{dtype, element * count};
}

// The K or the V half: `layers` times a head and rows of one size, or their transpose.
Status ParseHalf(ByteReader& reader, const char* half, StateRows& rows, size_t& row_bytes,
                 std::vector<std::byte*>& bases) {
  const bool transposed = rows.form.transposed_values && &bases == &rows.v;
  bases.reserve(rows.layers);
  for (uint32_t layer = 0; layer < rows.layers; ++layer) {
    INFERSCALE_ASSIGN(const LayerHead head, ReadLayerHead(reader, transposed, half, layer));
    const auto [dtype, bytes] = head;
    if (layer == 0) row_bytes = bytes;
    if (layer == 0 && &bases == &rows.k) rows.dtype = dtype;
    if (dtype != rows.dtype || bytes != row_bytes || bytes == 0) {
      return Fail(Code::kUnsupported, "state: {} of layer {} has rows of {} bytes, others of {}",
                  half, layer, bytes, row_bytes);
    }
    const size_t count = rows.positions.size();
    if (bytes > reader.remaining() / count) {
      return Fail(Code::kCorrupt, "state: {} rows of {} bytes in {} of layer {} exceed the {} left",
                  count, bytes, half, layer, reader.remaining());
    }
    // The only cast away of const: CacheLayout serves reading and writing alike.
    bases.push_back(const_cast<std::byte*>(reader.Take(bytes * count).data()));
  }
  return {};
}

Status ParseStream(ByteReader& reader, uint32_t count, StateRows& rows) {
  if (count > reader.remaining() / kRowMetaBytes) {
    return Fail(Code::kCorrupt, "state: {} rows do not fit in {} bytes", count, reader.remaining());
  }
  rows.positions.reserve(count);
  for (uint32_t row = 0; row < count; ++row) {
    rows.positions.push_back(reader.Read<int32_t>());
    const auto sequences = reader.Read<uint32_t>();
    reader.Skip(sizeof(int32_t));
    if (sequences != 1 || rows.positions.back() < 0) {
      return Fail(Code::kCorrupt, "state: row {} has position {} and {} sequences", row,
                  rows.positions.back(), sequences);
    }
  }
  const auto transposed = reader.Read<uint32_t>();
  rows.layers = reader.Read<uint32_t>();
  const uint32_t rotations = kHasRotations ? reader.Read<uint32_t>() | reader.Read<uint32_t>() : 0;
  if (!reader.ok()) return Fail(Code::kCorrupt, "state: ends before its layers");
  if (transposed > 1) return Fail(Code::kCorrupt, "state: value form {}", transposed);
  rows.form.transposed_values = transposed == 1;
  if (rotations != 0) return Fail(Code::kUnsupported, "state: keys or values are rotated");
  if (rows.layers == 0 || rows.layers > kMaxLayers) {
    return Fail(Code::kCorrupt, "state: {} layers", rows.layers);
  }
  INFERSCALE_TRY(ParseHalf(reader, "K", rows, rows.k_row_bytes, rows.k));
  return ParseHalf(reader, "V", rows, rows.v_row_bytes, rows.v);
}

Status ParseCache(ByteReader& reader, StateRows& rows) {
  rows.form.streams = reader.Read<uint32_t>();
  if (!reader.ok()) return Fail(Code::kCorrupt, "state: ends before a cache");
  if (rows.form.streams == 0 || rows.form.streams > kMaxStreams) {
    return Fail(Code::kCorrupt, "state: {} streams", rows.form.streams);
  }
  for (uint32_t stream = 0; stream < rows.form.streams; ++stream) {
    const auto count = reader.Read<uint32_t>();
    if (!reader.ok()) return Fail(Code::kCorrupt, "state: ends before stream {}", stream);
    if (count == 0) continue;
    if (!rows.positions.empty()) {
      return Fail(Code::kCorrupt, "state: a sequence in more than one stream");
    }
    INFERSCALE_TRY(ParseStream(reader, count, rows));
  }
  return {};
}

StateRows WritePart(SpanWriter& writer, const StatePart& part, const StateForm& form) {
  const auto& [shape, positions] = part;
  StateRows rows;
  rows.form = form;
  rows.positions = positions;
  rows.layers = shape.layers;
  rows.dtype = shape.dtype;
  rows.k_row_bytes = shape.KRowBytes();
  rows.v_row_bytes = shape.VRowBytes();

  writer.Write(form.streams);
  writer.Write(static_cast<uint32_t>(positions.size()));
  for (const int32_t position : positions) {
    writer.Write(position);
    writer.Write(uint32_t{1});
    writer.Write(int32_t{0});
  }
  writer.Write(uint32_t{form.transposed_values});
  writer.Write(shape.layers);
  if (kHasRotations) {
    writer.Write(uint32_t{0});
    writer.Write(uint32_t{0});
  }
  const auto half = [&](size_t row_bytes, std::vector<std::byte*>& bases) {
    for (uint32_t layer = 0; layer < rows.layers; ++layer) {
      writer.Write(GgmlType(rows.dtype));
      if (form.transposed_values && &bases == &rows.v) {
        const auto element = static_cast<uint32_t>(DtypeSize(rows.dtype));
        writer.Write(element);
        writer.Write(static_cast<uint32_t>(row_bytes) / element);
      } else {
        writer.Write(uint64_t{row_bytes});
      }
      bases.push_back(writer.Skip(row_bytes * rows.positions.size()));
    }
  };
  half(rows.k_row_bytes, rows.k);
  half(rows.v_row_bytes, rows.v);
  // llama.cpp puts the rows into the destination's stream, whichever record they stand in.
  for (uint32_t stream = 1; stream < form.streams; ++stream) writer.Write(uint32_t{0});
  return rows;
}

}  // namespace

CacheLayout StateRows::Layout(const KvShape& shape, std::span<std::byte* const> k_base,
                              std::span<std::byte* const> v_base) const {
  const size_t size = DtypeSize(dtype);
  CacheLayout layout;
  layout.k_base = k_base;
  layout.v_base = v_base;
  layout.k = {0, static_cast<int64_t>(k_row_bytes), static_cast<int64_t>(shape.k_dim * size)};
  layout.v = {0, static_cast<int64_t>(v_row_bytes), static_cast<int64_t>(shape.v_dim * size)};
  layout.page_tokens = 0;
  layout.dtype = dtype;
  return layout;
}

size_t StateBlobSize(std::span<const StatePart> parts, const StateForm& form) {
  size_t bytes = kHeadBytes;
  for (const auto& [shape, positions] : parts) {
    bytes += sizeof(uint32_t) + form.streams * sizeof(uint32_t) +
             (kHasRotations ? 4 : 2) * sizeof(uint32_t) + positions.size() * kRowMetaBytes +
             2 * shape.layers * kLayerHeadBytes + positions.size() * shape.TokenBytes();
  }
  return bytes;
}

std::vector<StateRows> WriteStateBlob(std::span<const StatePart> parts, const StateForm& form,
                                      MutableByteSpan blob) {
  SpanWriter writer(blob);
  writer.Write(kMagic);
  writer.Write(int32_t{0});
  std::vector<StateRows> caches;
  for (const StatePart& part : parts) caches.push_back(WritePart(writer, part, form));
  return caches;
}

Result<std::vector<StateRows>> ParseStateBlob(ByteSpan blob, size_t caches) {
  ByteReader reader(blob);
  const auto magic = reader.Read<uint32_t>();
  reader.Skip(sizeof(int32_t));
  if (!reader.ok()) return Fail(Code::kCorrupt, "state: {} bytes are too few", blob.size());
  if (magic != kMagic) return Fail(Code::kCorrupt, "state: begins with {:08x}", magic);
  std::vector<StateRows> parts(caches);
  for (StateRows& rows : parts) INFERSCALE_TRY(ParseCache(reader, rows));
  if (reader.remaining() != 0) {
    return Fail(Code::kUnsupported, "state: {} bytes follow the last stream", reader.remaining());
  }
  return parts;
}

}  // namespace inferscale
