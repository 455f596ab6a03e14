// Files that earlier builds wrote. They are frozen: a build that can't read them is wrong, not
// they.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "sample.h"
#include "store/segment.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

const std::string kCompat = INFERSCALE_SOURCE_DIR "/tests/store/compat/";

// Payload byte i of record r of the sample files; no random generator that could change.
std::byte FrozenByte(size_t record, size_t i) {
  return static_cast<std::byte>((record * 31 + i * 7 + i / 256) & 0xFF);
}

std::vector<std::byte> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const ByteSpan bytes = AsBytes(text);
  return {bytes.begin(), bytes.end()};
}

// One line of expected.txt.
struct Expected {
  std::string key, fingerprint, tenant, dtype;
  KvShape shape;
  std::vector<Token> tokens;
  uint64_t offset = 0;
};

// key fingerprint tenant layers kv_heads k_dim v_dim dtype offset token...
std::vector<Expected> ReadExpected(const std::string& path) {
  std::ifstream file(path);
  std::vector<Expected> out;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Expected e;
    words >> e.key >> e.fingerprint >> e.tenant >> e.shape.layers >> e.shape.kv_heads;
    words >> e.shape.k_dim >> e.shape.v_dim >> e.dtype >> e.offset;
    e.shape.dtype = ParseDtype(e.dtype).value();
    for (Token token = 0; words >> token;) e.tokens.push_back(token);
    if (e.tenant == "-") e.tenant.clear();
    out.push_back(e);
  }
  return out;
}

// Fails unless a segment file holds the records that its list names.
void ExpectSegment(const std::string& name, size_t records) {
  const auto file = ReadFile(kCompat + name + ".seg");
  const auto expected = ReadExpected(kCompat + name + ".expected.txt");
  ASSERT_EQ(expected.size(), records);
  uint64_t offset = 0;
  for (size_t r = 0; r < expected.size(); ++r) {
    const Expected& e = expected[r];
    ASSERT_EQ(offset, e.offset);
    const ByteSpan record = ByteSpan(file).subspan(offset);
    const auto header = ParseRecordHeader(record);
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->info.key.Hex(), e.key);
    EXPECT_EQ(header->info.fingerprint.Hex(), e.fingerprint);
    EXPECT_EQ(header->info.tenant, e.tenant);
    EXPECT_EQ(header->info.shape, e.shape);
    EXPECT_EQ(header->info.tokens, e.tokens);
    const ByteSpan payload = record.subspan(header->PayloadOffset(), header->payload_bytes);
    EXPECT_TRUE(CheckPayload(*header, payload));
    for (size_t i = 0; i < payload.size(); ++i) ASSERT_EQ(payload[i], FrozenByte(r, i)) << i;
    offset += header->prefix.record_bytes;
  }
  EXPECT_EQ(offset, file.size());
}

TEST(Compat, SegmentsOfVersion1AreRead) {
  ExpectSegment("v1", 4);
  ExpectSegment("v1-quantised", 2);
}

// A whole directory as an earlier build left it, catalog and segments.
TEST(Compat, AStoreOfVersion1IsOpened) {
  TempDir dir;
  fs::copy(kCompat + "v1.store", dir.path() + "/kv", fs::copy_options::recursive);
  const SystemClock clock;
  auto store = KvStore::Open(SystemEnv(), clock, SampleOptions(dir.path() + "/kv"));
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ((*store)->stats().recovery, Recovery::kRecovered);
  const auto expected = ReadExpected(kCompat + "v1.expected.txt");
  EXPECT_EQ((*store)->Keys()->size(), expected.size());
  for (size_t r = 0; r < expected.size(); ++r) {
    const Expected& e = expected[r];
    const auto kv =
        (*store)->Get(Hash128::FromHex(e.key), Hash128::FromHex(e.fingerprint), e.shape);
    ASSERT_TRUE(kv) << kv.error().message;
    const FactKvView view = (*kv)->view();
    for (size_t i = 0; i < view.SizeBytes(); ++i) ASSERT_EQ(view.data[i], FrozenByte(r, i)) << i;
  }
  EXPECT_TRUE((*store)->Compact(true));
}

}  // namespace
}  // namespace inferscale
