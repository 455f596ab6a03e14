#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace inferscale {
namespace {

TEST(Crc32c, KnownAnswers) {
  // RFC 3720, B.4 and the usual check value.
  EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xE3069283U);
  EXPECT_EQ(Crc32c(AsBytes(std::string(32, '\0'))), 0x8A9136AAU);
  EXPECT_EQ(Crc32c({}), 0U);
}

TEST(Crc32c, ContinuesFromASeed) {
  const std::string text = "a record in several pieces, 43 bytes of it.";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = Crc32c(AsBytes(std::string_view(text).substr(0, cut)));
    EXPECT_EQ(Crc32c(AsBytes(std::string_view(text).substr(cut)), first), Crc32c(AsBytes(text)));
  }
}

TEST(Hash128, HexRoundTrip) {
  const Hash128 hash = HashBytes(AsBytes("fact"));
  EXPECT_EQ(hash.Hex().size(), 32U);
  EXPECT_EQ(Hash128::FromHex(hash.Hex()), hash);
  EXPECT_TRUE(Hash128::FromHex("xyz").IsZero());
  EXPECT_TRUE(Hash128::FromHex("0123456789abcdef0123456789abcdeg").IsZero());
}

TEST(Hasher, FieldsDoNotRunTogether) {
  EXPECT_NE(Hasher().Add("ab").Add("c").Digest(), Hasher().Add("a").Add("bc").Digest());
  EXPECT_EQ(Hasher().Add("ab").Add(7).Digest(), Hasher().Add("ab").Add(7).Digest());
}

}  // namespace
}  // namespace inferscale
