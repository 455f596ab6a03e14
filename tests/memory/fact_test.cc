#include "memory/fact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/utf8.h"
#include "memory/fold.h"
#include "memory/half.h"

namespace inferscale {
namespace {

constexpr int64_t kDayMs = 86'400'000;

Fact Said(std::string text, std::string speaker = "", std::optional<int64_t> when = {}) {
  Fact fact;
  fact.text = std::move(text);
  fact.speaker = std::move(speaker);
  fact.when_ms = when;
  return fact;
}

TEST(RenderDateTest, WritesTheDayInUtc) {
  EXPECT_EQ(RenderDate(0), "1 January 1970");
  EXPECT_EQ(RenderDate(-1), "31 December 1969");
  EXPECT_EQ(RenderDate(kDayMs - 1), "1 January 1970");
  EXPECT_EQ(RenderDate(1'709'164'800'000), "29 February 2024");
  EXPECT_EQ(RenderDate(1'683'553'000'000), "8 May 2023");
}

TEST(RenderDateTest, StaysInFourDigitYears) {
  EXPECT_EQ(RenderDate(std::numeric_limits<int64_t>::max()), "31 December 9999");
  EXPECT_EQ(RenderDate(std::numeric_limits<int64_t>::min()), "1 January 1");
}

TEST(RenderFactTest, LeavesOutWhatIsNotThere) {
  EXPECT_EQ(RenderFact(Said("hi", "Ana", 1'683'553'000'000)), "[8 May 2023] Ana: hi\n");
  EXPECT_EQ(RenderFact(Said("hi", "Ana")), "Ana: hi\n");
  EXPECT_EQ(RenderFact(Said("hi", "", 0)), "[1 January 1970] hi\n");
  EXPECT_EQ(RenderFact(Said("hi")), "hi\n");
}

TEST(RenderFactTest, AFactIsOneLine) {
  EXPECT_EQ(RenderFact(Said("a\nb\r\nc\vd\fe")), "a b  c d e\n");
  EXPECT_EQ(RenderFact(Said("a\u0085b\u2028c\u2029d")), "a b c d\n");
  EXPECT_EQ(RenderFact(Said("x", "A\n[1 May 2024] B")), "A [1 May 2024] B: x\n");
  EXPECT_EQ(RenderFact(Said("tab\tand é 漢 😀 stay")), "tab\tand é 漢 😀 stay\n");
}

TEST(NormalizeTest, CasePunctuationAndSpacingDoNotCount) {
  const std::string plain = NormalizeForDuplicates(Said("I don't like the Ärger in Kyiv"));
  for (const char* same :
       {"i dont like the ÄRGER in kyiv", "I don’t like... the ärger — in KYIV!",
        "  I don't  like\tthe\närger, in Kyiv.  ", "“I don't like the ärger in Kyiv”"}) {
    EXPECT_EQ(NormalizeForDuplicates(Said(same)), plain) << same;
  }
}

TEST(NormalizeTest, WhatChangesTheMeaningCounts) {
  const std::pair<const char*, const char*> different[] = {{"I like C", "I like C++"},
                                                           {"it is 5 degrees", "it is -5 degrees"},
                                                           {"3.5 km", "35 km"},
                                                           {"3.5 km", "3 5 km"},
                                                           {"10:30", "10 30"},
                                                           {"5 %", "5"},
                                                           {"ab", "a b"},
                                                           {"?!", "..."},
                                                           {"a@b.org", "ab.org"},
                                                           {"naïve", "naive"},
                                                           {"😀", "😢"}};
  for (const auto& [a, b] : different) {
    EXPECT_NE(NormalizeForDuplicates(Said(a)), NormalizeForDuplicates(Said(b))) << a << " / " << b;
  }
}

TEST(NormalizeTest, SpeakerAndDayCount) {
  const std::string ana = NormalizeForDuplicates(Said("hi", "Ana", 0));
  EXPECT_EQ(NormalizeForDuplicates(Said("hi", "Ana", kDayMs - 1)), ana);
  EXPECT_NE(NormalizeForDuplicates(Said("hi", "Ana", kDayMs)), ana);
  EXPECT_NE(NormalizeForDuplicates(Said("hi", "Ana")), ana);
  EXPECT_NE(NormalizeForDuplicates(Said("hi", "Ben", 0)), ana);
}

TEST(FoldTest, LowersLatinGreekCyrillicAndArmenian) {
  EXPECT_EQ(FoldCase(std::string_view("AZ ÀÞ× ŁŻŽŸ ΑΩΆΈΌΏς ЀЯҐӐ ԱՖ ẞ")),
            "az àþ× łżžÿ αωάέόώσ ѐяґӑ աֆ ß");
}

TEST(FoldTest, IsIdempotentAndValidOnAnyBytes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes(random() % 12, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random() % 3 == 0 ? random() : 0xC0 | (random() & 0x3F));
    }
    const std::string folded = FoldCase(std::string_view(bytes));
    ASSERT_EQ(FindInvalidUtf8(folded), std::string_view::npos);
    ASSERT_EQ(FoldCase(std::string_view(folded)), folded);
    (void)NormalizeForDuplicates(Said(bytes));
    (void)RenderFact(Said(bytes));
  }
}

TEST(FoldTest, TakesAndAppendsEveryCharacter) {
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 77) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, text);
    std::string_view rest = text;
    ASSERT_EQ(TakeCharacter(rest), c);
    ASSERT_TRUE(rest.empty());
  }
}

TEST(HalfTest, EveryHalfComesBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7C00) == 0x7C00) continue;  // infinities and NaN are not stored
    ASSERT_EQ(FloatToHalf(HalfToFloat(static_cast<uint16_t>(half))), half);
  }
}

TEST(HalfTest, RoundsToTheNearest) {
  EXPECT_EQ(HalfToFloat(FloatToHalf(1.0F)), 1.0F);
  EXPECT_EQ(HalfToFloat(FloatToHalf(-kMaxHalf)), -kMaxHalf);
  EXPECT_EQ(FloatToHalf(1.0F + 0x1p-11F), FloatToHalf(1.0F));  // a tie goes to the even one
  EXPECT_EQ(HalfToFloat(FloatToHalf(1.0F + 0x3p-11F)), 1.0F + 0x2p-10F);
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 100'000; ++i) {
    const float value = std::ldexp(std::uniform_real_distribution(-1.0F, 1.0F)(random),
                                   static_cast<int>(random() % 40) - 26);
    if (std::fabs(value) > kMaxHalf) continue;
    const float back = HalfToFloat(FloatToHalf(value));
    const float step = std::max(std::ldexp(1.0F, std::ilogb(value) - 10), 0x1p-24F);
    ASSERT_LE(std::fabs(back - value), step / 2) << value;
  }
}

}  // namespace
}  // namespace inferscale
