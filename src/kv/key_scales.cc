#include "kv/key_scales.h"

#include <algorithm>
#include <cmath>

#include "kv/element_bits.h"

namespace inferscale {
namespace {

constexpr uint32_t kMagic = 0x534B5349;  // "ISKS" in the file
constexpr uint16_t kVersion = 1;

bool IsScale(float value) { return std::isfinite(value) && value > 0.0F; }

}  // namespace

Fingerprint KeyScales::RecordFingerprint() const {
  Hasher hasher;
  // The number changes when the meaning of stored elements does.
  hasher.Add("inferscale codec").Add(uint64_t{1});
  hasher.Add(model).Add(DtypeName(shape.dtype));
  hasher.AddBytes(std::as_bytes(std::span(values)));
  return hasher.Digest();
}

KeyScales MakeKeyScales(const Fingerprint& model, const KvShape& shape,
                        std::span<const float> maxima, float margin) {
  KeyScales out{model, shape, {}};
  out.values.reserve(maxima.size());
  const float limit = shape.dtype == Dtype::kI8 ? kI8Max : kF8Max;
  for (size_t head = 0; head < maxima.size(); head += shape.k_dim) {
    const auto channels = maxima.subspan(head, shape.k_dim);
    const float largest = *std::max_element(channels.begin(), channels.end());
    for (const float maximum : channels) {
      const float scale = maximum / limit * margin;
      const float whole_head = largest / limit * margin;
      out.values.push_back(IsScale(scale) ? scale : IsScale(whole_head) ? whole_head : 1.0F);
    }
  }
  return out;
}

std::vector<std::byte> EncodeKeyScales(const KeyScales& scales) {
  ByteWriter out;
  out.Write(kMagic);
  out.Write(kVersion);
  out.Write(static_cast<uint8_t>(scales.shape.dtype));
  out.Write(uint8_t{0});
  out.Write(scales.model.high);
  out.Write(scales.model.low);
  out.Write(scales.shape.layers);
  out.Write(scales.shape.kv_heads);
  out.Write(scales.shape.k_dim);
  out.Write(scales.shape.v_dim);
  out.WriteBytes(std::as_bytes(std::span(scales.values)));
  out.Write(Crc32c(out.bytes()));
  return out.Release();
}

Result<KeyScales> ParseKeyScales(ByteSpan bytes) {
  constexpr size_t kCrcBytes = sizeof(uint32_t);
  if (bytes.size() < kCrcBytes) return Fail(Code::kCorrupt, "key scales of {} bytes", bytes.size());
  const ByteSpan body = bytes.first(bytes.size() - kCrcBytes);
  if (ByteReader(bytes.last(kCrcBytes)).Read<uint32_t>() != Crc32c(body)) {
    return Fail(Code::kCorrupt, "checksum of key scales does not match");
  }
  ByteReader in(body);
  const auto magic = in.Read<uint32_t>();
  const auto version = in.Read<uint16_t>();
  if (!in.ok() || magic != kMagic || version != kVersion) {
    return Fail(Code::kCorrupt, "these are no key scales of version {}", kVersion);
  }
  KeyScales out;
  out.shape.dtype = static_cast<Dtype>(in.Read<uint8_t>());
  in.Skip(1);
  out.model.high = in.Read<uint64_t>();
  out.model.low = in.Read<uint64_t>();
  out.shape.layers = in.Read<uint32_t>();
  out.shape.kv_heads = in.Read<uint32_t>();
  out.shape.k_dim = in.Read<uint32_t>();
  out.shape.v_dim = in.Read<uint32_t>();
  const bool known = in.ok() && out.shape.Validate() && IsQuantised(out.shape.dtype);
  if (!known || in.remaining() != out.shape.KeyScales() * sizeof(float)) {
    return Fail(Code::kCorrupt, "key scales of {} bytes for {}", bytes.size(),
                out.shape.ToString());
  }
  const ByteSpan values = in.Take(in.remaining());
  out.values.resize(out.shape.KeyScales());
  std::memcpy(out.values.data(), values.data(), values.size());
  if (!std::all_of(out.values.begin(), out.values.end(), IsScale)) {
    return Fail(Code::kCorrupt, "a key scale is not a positive number");
  }
  return out;
}

}  // namespace inferscale
