// The records of a segment file, as docs/segment_format.md describes them. Bytes in, bytes out:
// this code opens no file.
#ifndef INFERSCALE_STORE_SEGMENT_H_
#define INFERSCALE_STORE_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "store/kv_store.h"

namespace inferscale {

inline constexpr uint64_t kSegmentAlignment = 4096;  // of a record and of its payload
inline constexpr uint16_t kRecordVersion = 1;
inline constexpr size_t kRecordPrefixBytes = 24;    // the part that every version has
inline constexpr size_t kRecordFixedBytes = 96;     // before the tenant's name and the tokens
inline constexpr size_t kMaxHeaderBytes = 1 << 24;  // about four million tokens

constexpr uint64_t AlignRecord(uint64_t bytes) {
  return (bytes + kSegmentAlignment - 1) / kSegmentAlignment * kSegmentAlignment;
}

// The part whose place no later version may move, so that a reader can tell a record that it does
// not understand from a damaged one.
struct RecordPrefix {
  uint16_t version = 0;
  uint16_t flags = 0;
  uint32_t header_bytes = 0;  // covered by header_crc
  uint32_t header_crc = 0;    // with its own four bytes taken as zeros
  uint64_t record_bytes = 0;  // all of it, a multiple of kSegmentAlignment

  bool Understood() const { return version == kRecordVersion && flags == 0; }
};

struct RecordHeader {
  RecordPrefix prefix;
  KvRecordInfo info;
  uint64_t payload_bytes = 0;
  uint32_t payload_crc = 0;

  uint64_t PayloadOffset() const { return AlignRecord(prefix.header_bytes); }
};

// kInvalid unless `info` can be a record with a payload of `payload_bytes`.
Status CheckRecord(const KvRecordInfo& info, uint64_t payload_bytes);

// Bytes on disk of a record that CheckRecord accepts.
uint64_t RecordBytes(const KvRecordInfo& info, uint64_t payload_bytes);

// The header of a record, padded to where the payload begins. The payload follows as it is, then
// zeros up to prefix.record_bytes.
struct EncodedHeader {
  std::vector<std::byte> bytes;
  RecordPrefix prefix;
};
EncodedHeader EncodeRecordHeader(const KvRecordInfo& info, ByteSpan payload);

// Reads and verifies the header at the start of `bytes`. kCorrupt if a check fails or `bytes` ends
// too early, kUnsupported if the header is sound but of another version or with unknown flags.
Result<RecordPrefix> ParseRecordPrefix(ByteSpan bytes);
Result<RecordHeader> ParseRecordHeader(ByteSpan bytes);

// kCorrupt unless `payload` is the one that `header` was written for.
Status CheckPayload(const RecordHeader& header, ByteSpan payload);

}  // namespace inferscale

#endif  // INFERSCALE_STORE_SEGMENT_H_
