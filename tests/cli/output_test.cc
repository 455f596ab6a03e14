#include "cli/output.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/utf8.h"
#include "cli/answer_view.h"
#include "cli/fact_view.h"
#include "cli/progress.h"

namespace inferscale {
namespace {

TEST(OneLine, KeepsTextAndDropsWhatWouldMoveTheCursor) {
  EXPECT_EQ(OneLine("Ana: olá, 你好"), "Ana: olá, 你好");
  EXPECT_EQ(OneLine("a\nb\tc\x1b[2Jd\x7f"), "a b c [2Jd ");
  EXPECT_EQ(OneLine("\xC2\x9B"
                    "2J"),
            " 2J");  // a control character of two bytes
  EXPECT_EQ(OneLine("a\u202E"
                    "b"),
            "a b");  // right-to-left override
  EXPECT_EQ(SafeText("a\nb\tc\x1b[0m"), "a\nb\tc [0m");
}

TEST(OneLine, GivesValidUtf8WhateverTheBytes) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = {'x', static_cast<char>(byte), 'y'};
    EXPECT_EQ(FindInvalidUtf8(OneLine(text)), std::string::npos) << byte;
  }
  EXPECT_EQ(OneLine("a\xFF"
                    "b"),
            "a\uFFFDb");
}

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(DisplayWidth(""), 0U);
  EXPECT_EQ(DisplayWidth("olá"), 3U);
  EXPECT_EQ(DisplayWidth("你好"), 4U);
  EXPECT_EQ(DisplayWidth("e\u0301"), 1U);  // combining acute
  EXPECT_EQ(DisplayWidth("🚲"), 2U);
}

TEST(Shorten, CutsAtCharactersAndFits) {
  EXPECT_EQ(Shorten("short", 5), "short");
  EXPECT_EQ(Shorten("longer", 5), "long…");
  EXPECT_EQ(Shorten("你好吗", 5), "你好…");
  EXPECT_EQ(Shorten("你好吗", 4), "你…");
  EXPECT_EQ(Shorten("abc", 0), "");
}

TEST(Format, TimesBytesCounts) {
  EXPECT_EQ(FormatTime(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(FormatTime(1709210096789), "2024-02-29T12:34:56.789Z");
  EXPECT_EQ(FormatTime(-1), "1969-12-31T23:59:59.999Z");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(uint64_t{5} << 30), "5.0 GiB");
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatMs(0.456), "0.46 ms");
  EXPECT_EQ(FormatMs(45.67), "45.7 ms");
  EXPECT_EQ(FormatMs(4567), "4.57 s");
}

TEST(Table, AlignsByColumnsAndNotByBytes) {
  Table table({{"NAME"}, {"N", Align::kRight}, {"TEXT"}});
  table.Add({"José", "7", "x"});
  table.Add({"Jo", "123", "two\nlines"});
  EXPECT_EQ(table.ToString(0),
            "NAME    N  TEXT\n"
            "José    7  x\n"
            "Jo    123  two lines\n");
}

TEST(Table, ShortensOnlyTheLastColumn) {
  Table table({{"ID"}, {"TEXT"}});
  table.Add({"0123456789", "a text that is much longer than what fits"});
  EXPECT_EQ(table.ToString(30),
            "ID          TEXT\n"
            "0123456789  a text that is mu…\n");
}

TEST(ToJson, WritesNumbersAsPeopleDo) {
  EXPECT_EQ(ToJson({{"a", 38.1}, {"b", 1e21}, {"c", -3}, {"d", nullptr}, {"e", true}}),
            R"({"a":38.1,"b":1e+21,"c":-3,"d":null,"e":true})");
  EXPECT_EQ(ToJson(boost::json::array{1, "x\n\"", boost::json::object{}}), R"([1,"x\n\"",{}])");
  EXPECT_EQ(ToJson(std::numeric_limits<double>::infinity()), "null");
}

TEST(ToJson, IsValidWhateverTheBytes) {
  for (int byte = 0; byte < 256; ++byte) {
    boost::json::object object;
    object["k"] = boost::json::string(std::string{'x', static_cast<char>(byte)});
    const std::string text = ToJson(object);
    boost::json::error_code failed;
    boost::json::parse(text, failed);
    EXPECT_FALSE(failed) << byte << ": " << text;
  }
}

TEST(FactToJson, HasAllKeysForTheEmptiestFact) {
  Fact fact;
  fact.id = "1";
  fact.metadata = "not json";
  const boost::json::object object = FactToJson(fact);
  for (const char* key : {"id", "text", "speaker", "when", "user", "agent", "run", "metadata",
                          "version", "created", "updated", "expires"}) {
    EXPECT_TRUE(object.contains(key)) << key;
  }
  EXPECT_TRUE(object.at("when").is_null());
  EXPECT_TRUE(object.at("metadata").is_object());
}

TEST(ExplainNumbers, StepsAndTheRestAreTheTimeToTheFirstToken) {
  AskTimes times{.embed_ms = 1,
                 .search_ms = 2,
                 .compose_ms = 3,
                 .load_ms = 4,
                 .inject_ms = 5,
                 .prefill_ms = 6,
                 .first_token_ms = 25,
                 .total_ms = 100};
  EXPECT_DOUBLE_EQ(OtherMs(times), 4);
  times.first_token_ms = 20;  // clocks of two threads may disagree
  EXPECT_DOUBLE_EQ(OtherMs(times), 0);
}

TEST(ProgressLine, FillsTheBarByTheShare) {
  EXPECT_EQ(ProgressLine("Adding", 0, 10, "", 4), "Adding    [....] 0/10");
  EXPECT_EQ(ProgressLine("Adding", 5, 10, "9/s", 4), "Adding    [##..] 5/10  9/s");
  EXPECT_EQ(ProgressLine("Adding", 12, 10, "", 4), "Adding    [####] 12/10");
  EXPECT_EQ(ProgressLine("Adding", 0, 0, "", 4), "Adding    [####] 0/0");
  EXPECT_EQ(ProgressLine("Adding", 1000, 2000, "", 0), "Adding    1,000/2,000");
}

}  // namespace
}  // namespace inferscale
