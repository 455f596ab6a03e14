#include "memory/import.h"

#include <gtest/gtest.h>

#include <random>

namespace inferscale {
namespace {

struct Imported {
  Status status;
  std::vector<Fact> facts;
  std::vector<std::string> bad;
};

Imported Import(std::string_view content, ImportFormat format = ImportFormat::kAuto,
                const Fact& defaults = {}) {
  Imported out;
  out.status = ParseImport(content, format, defaults,
                           {[&](Fact&& fact) -> Status {
                              out.facts.push_back(std::move(fact));
                              return {};
                            },
                            [&](const Error& error) { out.bad.push_back(error.message); }});
  return out;
}

int64_t Ms(std::string_view text) { return ParseTime(text).value(); }

TEST(ParseTimeTest, KnowsIsoAndWords) {
  const std::pair<const char*, int64_t> times[] = {
      {"1970-01-01", 0},
      {"2024-05-08", 1'715'126'400'000},
      {"2024-05-08T13:56:00Z", 1'715'176'560'000},
      {"2024-05-08 13:56", 1'715'176'560'000},
      {"2024-05-08T13:56:00.25Z", 1'715'176'560'250},
      {"2024-05-08T13:56:00.123456789Z", 1'715'176'560'123},
      {"2024-05-08T15:56:00+02:00", 1'715'176'560'000},
      {"2024-05-08T15:56:00+0200", 1'715'176'560'000},
      {"2024-05-08T08:26:00-05:30", 1'715'176'560'000},
      {"2024-05-08T15:56+02", 1'715'176'560'000},
      {"1:56 pm on 8 May, 2024", 1'715'176'560'000},
      {"8 May 2024", 1'715'126'400'000},
      {" may 8, 2024 ", 1'715'126'400'000},
      {"8 MAY, 2024 13:56", 1'715'176'560'000},
      {"12:00 am on 1 January, 1970", 0},
      {"12:30 pm on 1 Jan, 1970", 45'000'000},
      {"29 February 2024", 1'709'164'800'000},
  };
  for (const auto& [text, ms] : times) {
    const auto parsed = ParseTime(text);
    ASSERT_TRUE(parsed.has_value()) << text;
    EXPECT_EQ(*parsed, ms) << text;
  }
}

TEST(ParseTimeTest, RefusesTheRest) {
  for (const char* text : {"",
                           " ",
                           "now",
                           "2024",
                           "2024-5-8",
                           "2024-13-01",
                           "2023-02-29",
                           "2024-05-08T",
                           "0000-01-01",
                           "2024-05-08T25:00",
                           "2024-05-08T12:60",
                           "2024-05-08T12:00:00.",
                           "2024-05-08T12:00+",
                           "2024-05-08T12:00+1",
                           "2024-05-08T12:00Zz",
                           "2024-05-08x",
                           "5/8/2024",
                           "8 May",
                           "May 2024",
                           "8 8 May 2024",
                           "13:56 pm on 8 May, 2024",
                           "0:10 am on 8 May, 2024",
                           "8 Mai 2024",
                           "31 June 2024",
                           "8 May 2024 2024",
                           "1:5 pm on 8 May, 2024",
                           "99999-01-01"}) {
    EXPECT_FALSE(ParseTime(text).has_value()) << text;
  }
}

TEST(ParseTimeTest, ComesBackFromTheRenderedDate) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 2000; ++i) {
    const auto day = static_cast<int64_t>(random() % 100'000) - 20'000;
    ASSERT_EQ(Ms(RenderDate(day * 86'400'000 + 5)), day * 86'400'000);
  }
}

TEST(ImportFormatTest, KnowsItsNames) {
  EXPECT_EQ(ParseImportFormat("jsonl").value(), ImportFormat::kJsonl);
  EXPECT_EQ(ParseImportFormat("auto").value(), ImportFormat::kAuto);
  EXPECT_EQ(ParseImportFormat("csv").error().code, Code::kInvalid);
}

TEST(ImportJsonlTest, ReadsFactsAndMessages) {
  Fact defaults;
  defaults.scope = {"t", "ana", "", "r"};
  const Imported in = Import(
      "\xEF\xBB\xBF{\"text\": \"one\"}\r\n"
      "\n"
      R"({"content": "two", "role": "user", "date": "2024-05-08", "user": "ben", "metadata": {"a": 1}})"
      "\n"
      R"({"messages": [{"role": "user", "name": "Cy", "content": "three"}, {"role": "assistant", "content": "four"}], "run": "s2", "timestamp": 1715126400})",
      ImportFormat::kAuto, defaults);
  ASSERT_TRUE(in.status.has_value());
  ASSERT_TRUE(in.bad.empty());
  ASSERT_EQ(in.facts.size(), 4U);
  EXPECT_EQ(in.facts[0].text, "one");
  EXPECT_EQ(in.facts[0].scope, defaults.scope);
  EXPECT_EQ(in.facts[1].speaker, "user");
  EXPECT_EQ(in.facts[1].scope.user, "ben");
  EXPECT_EQ(in.facts[1].when_ms, Ms("2024-05-08"));
  EXPECT_EQ(in.facts[1].metadata, R"({"a":1})");
  EXPECT_EQ(in.facts[2].speaker, "Cy");
  EXPECT_EQ(in.facts[2].scope.run, "s2");
  EXPECT_EQ(in.facts[3].speaker, "assistant");
  EXPECT_EQ(in.facts[3].when_ms, Ms("2024-05-08"));
}

TEST(ImportJsonlTest, ReportsBadLinesWithTheirNumber) {
  const Imported in = Import(
      "{\"text\": \"ok\"}\n"
      "nonsense\n"
      "{\"text\": \"\xFF\"}\n"
      "{\"text\": \"  \"}\n"
      "{\"text\": 5}\n"
      "{\"text\": \"x\", \"when\": \"soon\"}\n"
      "{\"text\": \"x\", \"metadata\": []}\n"
      "{\"messages\": 3}\n"
      "{\"messages\": [{\"content\": \"fine\"}, 7]}\n",
      ImportFormat::kJsonl);
  ASSERT_TRUE(in.status.has_value());
  EXPECT_EQ(in.facts.size(), 2U);
  const std::vector<std::string> expected = {"line 2: not a JSON object",
                                             "line 3: not UTF-8 at byte 10",
                                             "line 4: it has no text",
                                             "line 5: text is not a text",
                                             "line 6: not a time",
                                             "line 7: metadata is not a JSON object",
                                             "line 8: messages is not a list",
                                             "line 9, message 2: not a JSON object"};
  ASSERT_EQ(in.bad.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(in.bad[i].starts_with(expected[i])) << in.bad[i];
  }
}

TEST(ImportJsonlTest, RefusesWhatIsNoJsonl) {
  EXPECT_EQ(Import("a\nb\n", ImportFormat::kJsonl).status.error().code, Code::kInvalid);
  EXPECT_TRUE(Import("", ImportFormat::kJsonl).status.has_value());
}

constexpr std::string_view kConversations = R"([
 {"sample_id": "c1", "qa": [], "conversation": {
   "speaker_a": "Ana", "speaker_b": "Ben",
   "session_10_date_time": "9:05 am on 2 June, 2024",
   "session_10": [{"speaker": "Ben", "dia_id": "D10:1", "text": "Late."}],
   "session_2_date_time": "1:56 pm on 8 May, 2024",
   "session_2": [
     {"speaker": "Ana", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a red boat", "img_url": ["x"]},
     {"speaker": "Ben", "dia_id": "D2:2", "text": ""},
     {"speaker": "Ben", "dia_id": "D2:3", "text": "Nice."}],
   "session_3_date_time": "whenever",
   "session_3": [{"speaker": "Ana", "text": "Undated."}]}},
 {"sample_id": "c2"}
])";

TEST(ImportLocomoTest, ReadsSessionsInOrder) {
  const Imported in = Import(kConversations);
  ASSERT_TRUE(in.status.has_value()) << in.status.error().message;
  ASSERT_EQ(in.facts.size(), 4U);
  EXPECT_EQ(in.facts[0].text, "Look! [image: a red boat]");
  EXPECT_EQ(in.facts[0].scope.user, "c1");
  EXPECT_EQ(in.facts[0].scope.run, "session_2");
  EXPECT_EQ(in.facts[0].when_ms, Ms("2024-05-08T13:56:00Z"));
  EXPECT_EQ(in.facts[0].metadata, R"({"dia_id":"D2:1"})");
  EXPECT_EQ(in.facts[1].text, "Nice.");
  EXPECT_EQ(in.facts[2].text, "Undated.");
  EXPECT_EQ(in.facts[2].when_ms, std::nullopt);
  EXPECT_EQ(in.facts[3].scope.run, "session_10");
  ASSERT_EQ(in.bad.size(), 3U);
  EXPECT_TRUE(in.bad[0].starts_with("sample 1, session_2, turn 2: it has no text"));
  EXPECT_TRUE(in.bad[1].starts_with("sample 1, session_3: its date is not a time"));
  EXPECT_TRUE(in.bad[2].starts_with("sample 2: it has no conversation"));
}

TEST(ImportLocomoTest, RefusesOtherJson) {
  for (const char* text : {"[1, 2]", "5", "{", "[{\"a\": 1}]"}) {
    EXPECT_EQ(Import(text, ImportFormat::kLocomo).status.error().code, Code::kInvalid) << text;
  }
}

TEST(ImportTextTest, UnderstandsDatesAndNames) {
  const Imported in = Import(
      "[8 May 2024] Ana: I moved to Lisbon.\n"
      "Ben: ok\n"
      "just a line\n"
      "see http://example.org: it helps\n"
      "[not a date] stays whole\n"
      "[2024-05-08] undressed\n"
      "We talked, and then: nothing\n"
      "\xC3\x28\n"
      "Dr. Ana-Maria O'Neil: hi");
  ASSERT_TRUE(in.status.has_value());
  ASSERT_EQ(in.facts.size(), 8U);
  EXPECT_EQ(in.facts[0].text, "I moved to Lisbon.");
  EXPECT_EQ(in.facts[0].speaker, "Ana");
  EXPECT_EQ(in.facts[0].when_ms, Ms("2024-05-08"));
  EXPECT_EQ(in.facts[1].speaker, "Ben");
  EXPECT_EQ(in.facts[2].text, "just a line");
  EXPECT_EQ(in.facts[3].text, "see http://example.org: it helps");
  EXPECT_EQ(in.facts[4].text, "[not a date] stays whole");
  EXPECT_EQ(in.facts[5].text, "undressed");
  EXPECT_EQ(in.facts[6].speaker, "");
  EXPECT_EQ(in.facts[7].speaker, "Dr. Ana-Maria O'Neil");
  EXPECT_EQ(in.bad, std::vector<std::string>{"line 8: not UTF-8 at byte 0"});
}

TEST(ImportTextTest, WhatRenderFactWritesComesBack) {
  Fact fact;
  fact.text = "Tea at 5: yes.";
  fact.speaker = "Ana";
  fact.when_ms = Ms("2024-05-08");
  const Imported in = Import(RenderFact(fact));
  ASSERT_EQ(in.facts.size(), 1U);
  EXPECT_EQ(RenderFact(in.facts[0]), RenderFact(fact));
}

TEST(ImportTest, AnErrorOfTheSinkStops) {
  size_t seen = 0;
  const Status status = ParseImport("a\nb\nc\n", ImportFormat::kText, {},
                                    {[&](Fact&&) -> Status {
                                       if (++seen == 2) return Fail(Code::kExhausted, "full");
                                       return {};
                                     },
                                     [](const Error&) {}});
  EXPECT_EQ(status.error().code, Code::kExhausted);
  EXPECT_EQ(seen, 2U);
}

TEST(ImportTest, AnyDamageIsSurvived) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(kConversations);
    for (size_t n = random() % 5; n > 0; --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    for (const auto format :
         {ImportFormat::kAuto, ImportFormat::kJsonl, ImportFormat::kLocomo, ImportFormat::kText}) {
      for (const Fact& fact : Import(bytes, format).facts) ASSERT_FALSE(fact.text.empty());
    }
  }
}

}  // namespace
}  // namespace inferscale
