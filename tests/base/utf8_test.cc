#include "base/utf8.h"

#include <gtest/gtest.h>

namespace inferscale {
namespace {

TEST(Utf8, FindsWhatIsInvalid) {
  EXPECT_EQ(FindInvalidUtf8("plain, Grüße, 日本, 🙂"), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("ab\xFFz"), 2U);
  EXPECT_EQ(FindInvalidUtf8("\xC0\xAF"), 0U);          // overlong
  EXPECT_EQ(FindInvalidUtf8("\xED\xA0\x80"), 0U);      // surrogate
  EXPECT_EQ(FindInvalidUtf8("\xF4\x90\x80\x80"), 0U);  // above U+10FFFF
  EXPECT_EQ(FindInvalidUtf8("a\xE2\x82"), 1U);         // cut short
}

TEST(Utf8, StreamsWholeCharacters) {
  const std::string text = "aé日🙂";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const size_t whole = CompleteUtf8Prefix(std::string_view(text).substr(0, cut));
    EXPECT_LE(whole, cut);
    EXPECT_EQ(FindInvalidUtf8(std::string_view(text).substr(0, whole)), std::string_view::npos);
  }
  EXPECT_EQ(CompleteUtf8Prefix("\xFF"), 1U);  // will never be valid: goes on
  EXPECT_EQ(ReplaceInvalidUtf8("a\xFFz"), "a\xEF\xBF\xBDz");
}

}  // namespace
}  // namespace inferscale
