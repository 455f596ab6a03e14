#include "store/segment.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "sample.h"

namespace inferscale {
namespace {

std::vector<std::byte> Encode(const Sample& sample) {
  EncodedHeader header = EncodeRecordHeader(sample.info, sample.payload);
  std::vector<std::byte> record = std::move(header.bytes);
  record.insert(record.end(), sample.payload.begin(), sample.payload.end());
  record.resize(header.prefix.record_bytes);
  return record;
}

// Changes a field of the header and makes its checksum right again.
template <typename T>
void Patch(std::vector<std::byte>& record, size_t offset, T value) {
  std::memcpy(record.data() + offset, &value, sizeof(value));
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, record.data() + 8, sizeof(header_bytes));
  std::memset(record.data() + 12, 0, 4);
  const uint32_t crc = Crc32c(ByteSpan(record).first(header_bytes));
  std::memcpy(record.data() + 12, &crc, sizeof(crc));
}

Code ParseError(ByteSpan bytes) {
  const auto header = ParseRecordHeader(bytes);
  return header ? Code{} : header.error().code;
}

TEST(Segment, ARecordComesBackAsItWas) {
  for (uint64_t n = 1; n <= 50; ++n) {
    Sample sample = MakeSample(n, std::string(n % 7, 't'));
    const auto record = Encode(sample);
    EXPECT_EQ(record.size() % kSegmentAlignment, 0U);
    EXPECT_EQ(record.size(), RecordBytes(sample.info, sample.payload.size()));
    const auto header = ParseRecordHeader(record);
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->info.key, sample.info.key);
    EXPECT_EQ(header->info.tenant, sample.info.tenant);
    EXPECT_EQ(header->info.fingerprint, sample.info.fingerprint);
    EXPECT_EQ(header->info.shape, sample.info.shape);
    EXPECT_EQ(header->info.tokens, sample.info.tokens);
    EXPECT_EQ(header->prefix.record_bytes, record.size());
    const ByteSpan payload =
        ByteSpan(record).subspan(header->PayloadOffset(), header->payload_bytes);
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), sample.payload.begin()));
    EXPECT_TRUE(CheckPayload(*header, payload));
  }
}

TEST(Segment, AnyFlippedBitUnderAChecksumIsNoticed) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const Sample sample = MakeSample(9);
  const auto good = Encode(sample);
  const auto header = ParseRecordHeader(good).value();
  for (int i = 0; i < 2000; ++i) {
    auto bytes = good;
    const bool in_header = random() % 2 == 0;
    const size_t at = in_header ? random() % header.prefix.header_bytes
                                : header.PayloadOffset() + random() % header.payload_bytes;
    bytes[at] ^= static_cast<std::byte>(1 << random() % 8);
    if (in_header) {
      EXPECT_EQ(ParseError(bytes), Code::kCorrupt) << at;
    } else {
      EXPECT_FALSE(CheckPayload(
          header, ByteSpan(bytes).subspan(header.PayloadOffset(), header.payload_bytes)))
          << at;
    }
  }
}

TEST(Segment, ACutOffHeaderIsCorrupt) {
  const auto record = Encode(MakeSample(4));
  const uint32_t header_bytes = ParseRecordHeader(record)->prefix.header_bytes;
  for (size_t size = 0; size < header_bytes; ++size) {
    EXPECT_EQ(ParseError(ByteSpan(record).first(size)), Code::kCorrupt);
  }
  EXPECT_TRUE(ParseRecordHeader(ByteSpan(record).first(header_bytes)));
}

TEST(Segment, WhatIsNotUnderstoodIsNotCalledDamaged) {
  const auto good = Encode(MakeSample(4));
  auto flags = good, version = good, dtype = good;
  Patch<uint16_t>(flags, 6, 0x8000);
  Patch<uint16_t>(version, 4, kRecordVersion + 1);
  Patch<uint8_t>(dtype, 88, 77);
  for (const auto& record : {flags, version, dtype}) {
    EXPECT_EQ(ParseError(record), Code::kUnsupported);
    // A reader can still step over it.
    EXPECT_EQ(ParseRecordPrefix(record)->record_bytes, good.size());
  }
}

TEST(Segment, NumbersThatContradictAreCorruptEvenUnderAGoodChecksum) {
  const auto good = Encode(MakeSample(4));
  const auto damaged = [&](size_t offset, auto value) {
    auto record = good;
    Patch(record, offset, value);
    return ParseError(record);
  };
  EXPECT_EQ(damaged(16, uint64_t{good.size() + 4096}), Code::kCorrupt);
  EXPECT_EQ(damaged(16, uint64_t{100}), Code::kCorrupt);
  EXPECT_EQ(damaged(24, uint64_t{1}), Code::kCorrupt);           // payload_bytes
  EXPECT_EQ(damaged(36, uint32_t{0xFFFFFFFF}), Code::kCorrupt);  // token_count
  EXPECT_EQ(damaged(36, uint32_t{0}), Code::kCorrupt);
  EXPECT_EQ(damaged(72, uint32_t{0}), Code::kCorrupt);           // layers
  EXPECT_EQ(damaged(80, uint32_t{0x40000000}), Code::kCorrupt);  // k_dim
  EXPECT_EQ(damaged(90, uint16_t{0xFFFF}), Code::kCorrupt);      // tenant_bytes
}

// The example of docs/segment_format.md is a real record: its bytes, read from the document, are
// those that this code writes.
TEST(Segment, TheDocumentsExampleIsTrue) {
  Sample sample;
  sample.info.key = Hash128::FromHex("00112233445566778899aabbccddeeff");
  sample.info.fingerprint = Hash128::FromHex("0f1e2d3c4b5a69788796a5b4c3d2e1f0");
  sample.info.tenant = "acme";
  sample.info.shape = {1, 1, 2, 2, Dtype::kF16};
  sample.info.tokens = {5, 7};
  for (int i = 0; i < 16; ++i) sample.payload.push_back(static_cast<std::byte>(0xA0 + i));
  const auto record = Encode(sample);

  std::ifstream document(INFERSCALE_SOURCE_DIR "/docs/segment_format.md");
  ASSERT_TRUE(document);
  std::vector<std::byte> documented(record.size());
  size_t lines = 0;
  for (std::string line; std::getline(document, line);) {
    // "0000  49 53 4b 56 ..."
    std::istringstream words(line);
    size_t offset = 0;
    if (line.size() < 9 || line.substr(4, 2) != "  " || !(words >> std::hex >> offset)) continue;
    unsigned value = 0;
    for (size_t i = 0; i < 16 && words >> std::hex >> value; ++i) {
      ASSERT_LT(offset + i, documented.size());
      documented[offset + i] = static_cast<std::byte>(value);
    }
    ++lines;
  }
  EXPECT_EQ(lines, 8U);
  EXPECT_EQ(documented, record);
}

}  // namespace
}  // namespace inferscale
