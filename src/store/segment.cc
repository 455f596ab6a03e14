#include "store/segment.h"

#include <array>
#include <limits>

namespace inferscale {
namespace {

constexpr uint32_t kMagic = 0x564B5349;  // "ISKV" in the file
constexpr size_t kHeaderCrcOffset = 12;

uint64_t HeaderBytes(const KvRecordInfo& info) {
  return kRecordFixedBytes + info.tenant.size() + info.tokens.size() * sizeof(Token);
}

uint32_t HeaderCrc(ByteSpan header) {
  constexpr std::array<std::byte, sizeof(uint32_t)> kZeros{};
  const uint32_t before = Crc32c(header.first(kHeaderCrcOffset));
  return Crc32c(header.subspan(kHeaderCrcOffset + kZeros.size()), Crc32c(kZeros, before));
}

void WriteHash(ByteWriter& out, const Hash128& hash) {
  out.Write(hash.high);
  out.Write(hash.low);
}

Hash128 ReadHash(ByteReader& in) {
  const auto high = in.Read<uint64_t>();
  return {high, in.Read<uint64_t>()};
}

std::vector<std::byte> WriteHeader(const KvRecordInfo& info, const RecordPrefix& prefix,
                                   uint64_t payload_bytes, uint32_t payload_crc) {
  ByteWriter out;
  out.Write(kMagic);
  out.Write(prefix.version);
  out.Write(prefix.flags);
  out.Write(prefix.header_bytes);
  out.Write(prefix.header_crc);
  out.Write(prefix.record_bytes);
  out.Write(payload_bytes);
  out.Write(payload_crc);
  out.Write(static_cast<uint32_t>(info.tokens.size()));
  WriteHash(out, info.key);
  WriteHash(out, info.fingerprint);
  out.Write(info.shape.layers);
  out.Write(info.shape.kv_heads);
  out.Write(info.shape.k_dim);
  out.Write(info.shape.v_dim);
  out.Write(static_cast<uint8_t>(info.shape.dtype));
  out.Write(uint8_t{0});
  out.Write(static_cast<uint16_t>(info.tenant.size()));
  out.Write(uint32_t{0});
  out.WriteBytes(AsBytes(info.tenant));
  out.WriteBytes(std::as_bytes(std::span(info.tokens)));
  return out.Release();
}

}  // namespace

Status CheckRecord(const KvRecordInfo& info, uint64_t payload_bytes) {
  INFERSCALE_TRY(info.shape.Validate());
  if (info.tokens.empty()) return Fail(Code::kInvalid, "record {} has no tokens", info.key.Hex());
  if (info.tenant.size() > std::numeric_limits<uint16_t>::max()) {
    return Fail(Code::kInvalid, "record {}: tenant name of {} bytes", info.key.Hex(),
                info.tenant.size());
  }
  if (HeaderBytes(info) > kMaxHeaderBytes) {
    return Fail(Code::kInvalid, "record {} has too many tokens: {}", info.key.Hex(),
                info.tokens.size());
  }
  if (const uint64_t need = info.tokens.size() * info.shape.TokenBytes(); payload_bytes != need) {
    return Fail(Code::kInvalid, "record {}: payload of {} bytes, but {} tokens of {} need {}",
                info.key.Hex(), payload_bytes, info.tokens.size(), info.shape.ToString(), need);
  }
  return {};
}

uint64_t RecordBytes(const KvRecordInfo& info, uint64_t payload_bytes) {
  return AlignRecord(HeaderBytes(info)) + AlignRecord(payload_bytes);
}

EncodedHeader EncodeRecordHeader(const KvRecordInfo& info, ByteSpan payload) {
  EncodedHeader out;
  out.prefix.version = kRecordVersion;
  out.prefix.header_bytes = static_cast<uint32_t>(HeaderBytes(info));
  out.prefix.record_bytes = RecordBytes(info, payload.size());
  out.bytes = WriteHeader(info, out.prefix, payload.size(), Crc32c(payload));
  out.prefix.header_crc = HeaderCrc(out.bytes);
  std::memcpy(out.bytes.data() + kHeaderCrcOffset, &out.prefix.header_crc, sizeof(uint32_t));
  out.bytes.resize(AlignRecord(out.bytes.size()));
  return out;
}

Result<RecordPrefix> ParseRecordPrefix(ByteSpan bytes) {
  ByteReader in(bytes);
  const auto magic = in.Read<uint32_t>();
  RecordPrefix prefix;
  prefix.version = in.Read<uint16_t>();
  prefix.flags = in.Read<uint16_t>();
  prefix.header_bytes = in.Read<uint32_t>();
  prefix.header_crc = in.Read<uint32_t>();
  prefix.record_bytes = in.Read<uint64_t>();
  if (!in.ok() || magic != kMagic) return Fail(Code::kCorrupt, "no record begins here");
  if (prefix.header_bytes < kRecordPrefixBytes || prefix.header_bytes > kMaxHeaderBytes ||
      prefix.header_bytes > bytes.size()) {
    return Fail(Code::kCorrupt, "record header of {} bytes in {}", prefix.header_bytes,
                bytes.size());
  }
  if (HeaderCrc(bytes.first(prefix.header_bytes)) != prefix.header_crc) {
    return Fail(Code::kCorrupt, "checksum of a record header does not match");
  }
  if (prefix.record_bytes % kSegmentAlignment != 0 ||
      prefix.record_bytes < AlignRecord(prefix.header_bytes)) {
    return Fail(Code::kCorrupt, "record of {} bytes", prefix.record_bytes);
  }
  return prefix;
}

Result<RecordHeader> ParseRecordHeader(ByteSpan bytes) {
  RecordHeader out;
  INFERSCALE_ASSIGN(out.prefix, ParseRecordPrefix(bytes));
  if (!out.prefix.Understood()) {
    return Fail(Code::kUnsupported, "record of version {} with flags {:#06x}", out.prefix.version,
                out.prefix.flags);
  }
  ByteReader in(bytes.first(out.prefix.header_bytes));
  in.Skip(kRecordPrefixBytes);
  out.payload_bytes = in.Read<uint64_t>();
  out.payload_crc = in.Read<uint32_t>();
  const auto tokens = in.Read<uint32_t>();
  out.info.key = ReadHash(in);
  out.info.fingerprint = ReadHash(in);
  out.info.shape.layers = in.Read<uint32_t>();
  out.info.shape.kv_heads = in.Read<uint32_t>();
  out.info.shape.k_dim = in.Read<uint32_t>();
  out.info.shape.v_dim = in.Read<uint32_t>();
  const auto dtype = in.Read<uint8_t>();
  in.Skip(1);
  const auto tenant_bytes = in.Read<uint16_t>();
  in.Skip(4);
  if (dtype > static_cast<uint8_t>(kLastDtype)) {
    return Fail(Code::kUnsupported, "record of dtype {}", dtype);
  }
  out.info.shape.dtype = static_cast<Dtype>(dtype);

  const ByteSpan tenant = in.Take(tenant_bytes);
  const ByteSpan ids = in.Take(size_t{tokens} * sizeof(Token));
  if (!in.ok() || in.remaining() != 0) {
    return Fail(Code::kCorrupt, "record header of {} bytes does not hold {} tokens",
                out.prefix.header_bytes, tokens);
  }
  out.info.tenant.assign(reinterpret_cast<const char*>(tenant.data()), tenant.size());
  out.info.tokens.resize(tokens);
  if (tokens != 0) std::memcpy(out.info.tokens.data(), ids.data(), ids.size());

  if (Status sound = CheckRecord(out.info, out.payload_bytes); !sound) {
    return Fail(Code::kCorrupt, "{}", sound.error().message);
  }
  if (out.prefix.record_bytes != RecordBytes(out.info, out.payload_bytes)) {
    return Fail(Code::kCorrupt, "record {} of {} bytes", out.info.key.Hex(),
                out.prefix.record_bytes);
  }
  return out;
}

Status CheckPayload(const RecordHeader& header, ByteSpan payload) {
  if (payload.size() != header.payload_bytes || Crc32c(payload) != header.payload_crc) {
    return Fail(Code::kCorrupt, "checksum of the payload of record {} does not match",
                header.info.key.Hex());
  }
  return {};
}

}  // namespace inferscale
