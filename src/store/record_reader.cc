#include "store/record_reader.h"

#include <vector>

namespace inferscale {

Result<uint64_t> PayloadOffset(const CatalogRow& row) {
  // Bounded first: a damaged row must not become a huge allocation.
  const uint64_t length = row.place.length;
  if (row.payload_bytes <= length) {
    const uint64_t payload = AlignRecord(row.payload_bytes);
    if (payload < length && length - payload <= AlignRecord(kMaxHeaderBytes)) {
      return length - payload;
    }
  }
  return Fail(Code::kCorrupt, "record {}: {} bytes do not hold a payload of {}", row.key.Hex(),
              length, row.payload_bytes);
}

Result<RecordHeader> VerifyHeader(const CatalogRow& row, ByteSpan header) {
  INFERSCALE_ASSIGN(RecordHeader found, ParseRecordHeader(header));
  if (found.prefix.header_crc != row.place.checksum || found.info.key != row.key ||
      found.info.fingerprint != row.fingerprint || found.info.tenant != row.tenant ||
      found.info.tokens.size() != row.tokens || found.payload_bytes != row.payload_bytes ||
      found.prefix.record_bytes != row.place.length) {
    return Fail(Code::kCorrupt, "record {} in {} at {} is not the one in the catalog",
                row.key.Hex(), row.place.segment, row.place.offset);
  }
  return found;
}

Result<KvRecordInfo> VerifyRecord(const CatalogRow& row, ByteSpan header, ByteSpan payload) {
  INFERSCALE_ASSIGN(RecordHeader found, VerifyHeader(row, header));
  INFERSCALE_TRY(CheckPayload(found, payload));
  return std::move(found.info);
}

Result<KvRecordInfo> ReadRecord(Env& env, const std::string& dir, const CatalogRow& row,
                                MutableByteSpan payload) {
  INFERSCALE_ASSIGN(const uint64_t header_bytes, PayloadOffset(row));
  INFERSCALE_ASSIGN(const auto file, env.OpenRead(dir + "/" + row.place.segment));
  std::vector<std::byte> header(header_bytes);
  INFERSCALE_TRY(file->ReadAt(row.place.offset, header));
  INFERSCALE_TRY(file->ReadAt(row.place.offset + header_bytes, payload));
  return VerifyRecord(row, header, payload);
}

Result<KvRecordInfo> ReadRecordInfo(Env& env, const std::string& dir, const CatalogRow& row) {
  INFERSCALE_ASSIGN(const uint64_t header_bytes, PayloadOffset(row));
  INFERSCALE_ASSIGN(const auto file, env.OpenRead(dir + "/" + row.place.segment));
  std::vector<std::byte> header(header_bytes);
  INFERSCALE_TRY(file->ReadAt(row.place.offset, header));
  INFERSCALE_ASSIGN(RecordHeader found, VerifyHeader(row, header));
  return std::move(found.info);
}

}  // namespace inferscale
