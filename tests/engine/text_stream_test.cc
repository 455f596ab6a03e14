#include "engine/llama/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"

namespace inferscale {
namespace {

TEST(TextStream, CharactersComeWhole) {
  TextStream stream({});
  EXPECT_EQ(stream.Add("a\xC3"), "a");
  EXPECT_EQ(stream.Add("\xA9"), "é");
  EXPECT_EQ(stream.Add("\xF0\x9F"), "");
  EXPECT_EQ(stream.Add("\x98\x80!"), "😀!");
  EXPECT_EQ(stream.Add("\xE2\x82"), "");
  const std::string rest = stream.Finish();
  EXPECT_EQ(FindInvalidUtf8(rest), std::string::npos);
  EXPECT_NE(rest.find("\xEF\xBF\xBD"), std::string::npos);
}

TEST(TextStream, StopStringAcrossPieces) {
  TextStream stream({"STOP", "\n\n"});
  EXPECT_EQ(stream.Add("hello S"), "hello ");
  EXPECT_EQ(stream.Add("TO"), "");
  EXPECT_EQ(stream.Add("X"), "STOX");
  EXPECT_EQ(stream.Add("a\n"), "a");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.Add("\nmore"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.Add("and more"), "");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, TheFirstStopStringCounts) {
  TextStream stream({"world", "lo"});
  EXPECT_EQ(stream.Add("hello world"), "hel");
  EXPECT_TRUE(stream.stopped());
}

TEST(TextStream, WaitingTextComesAtTheEnd) {
  TextStream stream({"abc", ""});
  EXPECT_EQ(stream.Add("xab"), "x");
  EXPECT_EQ(stream.Finish(), "ab");
}

// However the bytes are cut, the text is the same.
TEST(TextStream, CutsDoNotMatter) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string text = "Größe ∞ 😀 </s> ein <END END> of it <END> never seen";
  for (int round = 0; round < 300; ++round) {
    TextStream stream({"<END>", "zzz"});
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t length = std::min<size_t>(1 + random() % 6, text.size() - at);
      const std::string piece = stream.Add(std::string_view(text).substr(at, length));
      ASSERT_EQ(FindInvalidUtf8(piece), std::string::npos);
      shown += piece;
      at += length;
    }
    EXPECT_EQ(shown + stream.Finish(), "Größe ∞ 😀 </s> ein <END END> of it ");
    EXPECT_TRUE(stream.stopped());
  }
}

}  // namespace
}  // namespace inferscale
