// A segment file of arbitrary bytes: no crash, no read outside the input, and whatever is accepted
// is written back as the same bytes.
#include <cstdlib>

#include "store/segment.h"

namespace inferscale {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

// Checksums hide everything behind them from a fuzzer, so the header's is made right first.
std::vector<std::byte> WithGoodChecksum(ByteSpan record) {
  std::vector<std::byte> out(record.begin(), record.end());
  ByteReader in(record);
  in.Skip(8);
  const auto header_bytes = in.Read<uint32_t>();
  if (!in.ok() || header_bytes < kRecordPrefixBytes || header_bytes > out.size()) return out;
  std::memset(out.data() + 12, 0, 4);
  const uint32_t crc = Crc32c(ByteSpan(out).first(header_bytes));
  std::memcpy(out.data() + 12, &crc, sizeof(crc));
  return out;
}

void ReadOne(ByteSpan bytes) {
  const auto header = ParseRecordHeader(bytes);
  if (!header) {
    Check(header.error().code == Code::kCorrupt || header.error().code == Code::kUnsupported);
    return;
  }
  Check(CheckRecord(header->info, header->payload_bytes).has_value());
  Check(header->PayloadOffset() + header->payload_bytes <= header->prefix.record_bytes);
  if (header->prefix.record_bytes > bytes.size()) return;
  const ByteSpan payload = bytes.subspan(header->PayloadOffset(), header->payload_bytes);
  if (!CheckPayload(*header, payload)) return;
  const EncodedHeader again = EncodeRecordHeader(header->info, payload);
  Check(again.prefix.record_bytes == header->prefix.record_bytes);
  const auto parsed = ParseRecordHeader(again.bytes);
  Check(parsed.has_value() && parsed->info.key == header->info.key &&
        parsed->info.tokens == header->info.tokens && parsed->payload_crc == header->payload_crc);
}

}  // namespace
}  // namespace inferscale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferscale;
  const ByteSpan bytes = std::as_bytes(std::span(data, size));
  ReadOne(WithGoodChecksum(bytes));
  // As a reader walks over a file.
  for (size_t at = 0; at < size;) {
    ReadOne(bytes.subspan(at));
    const auto prefix = ParseRecordPrefix(bytes.subspan(at));
    if (!prefix || prefix->record_bytes > size - at) break;
    at += prefix->record_bytes;
  }
  return 0;
}
