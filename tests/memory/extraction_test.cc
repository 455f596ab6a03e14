#include "memory/extraction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inferscale {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Fact Said(const std::string& speaker, const std::string& text, std::optional<int64_t> when = {}) {
  Fact fact;
  fact.speaker = speaker;
  fact.text = text;
  fact.when_ms = when;
  return fact;
}

std::vector<ExtractedFact> Parse(const std::string& answer, size_t known = 0,
                                 bool complete = true) {
  auto facts = ParseExtraction(answer, known, complete);
  EXPECT_TRUE(facts) << facts.error().message;
  return facts.value_or(std::vector<ExtractedFact>{});
}

TEST(Extraction, ThePromptNumbersWhatIsKnownAndTellsTheDay) {
  const std::vector<Fact> messages = {Said("Ana", "I moved\nyesterday.", 1'715'174'160'000),
                                      Said("Bo", "Oh!")};
  const std::vector<Fact> known = {Said("", "Ana lives in Rome."), Said("Bo", "I like tea.")};
  const ExtractionPrompt prompt = MakeExtractionPrompt(messages, known);
  EXPECT_THAT(prompt.system, EndsWith("Known memories:"));
  EXPECT_THAT(prompt.known, ElementsAre("1. Ana lives in Rome.\n", "2. Bo: I like tea.\n"));
  EXPECT_EQ(prompt.question, "Messages:\nWednesday [8 May 2024] Ana: I moved yesterday.\nBo: Oh!");
  EXPECT_THAT(MakeExtractionPrompt(messages, {}).known, ElementsAre("none\n"));
}

TEST(Extraction, TheGrammarNamesOnlyWhatIsKnown) {
  EXPECT_THAT(ExtractionGrammar(0), EndsWith("replaces ::= \"null\"\n"));
  EXPECT_THAT(ExtractionGrammar(2), EndsWith("replaces ::= \"null\" | \"1\" | \"2\"\n"));
  EXPECT_THAT(ExtractionGrammar(2), StartsWith("root ::= "));
}

TEST(Extraction, FactsAndWhatTheyReplace) {
  EXPECT_THAT(Parse(R"({"facts": [{"text": "Ana lives in Lisbon.", "replaces": 2},
                          {"text": "Bo likes \"tea\".", "replaces": null}, {"text": "x"}]})",
                    2),
              ElementsAre(ExtractedFact{"Ana lives in Lisbon.", 1},
                          ExtractedFact{"Bo likes \"tea\".", std::nullopt},
                          ExtractedFact{"x", std::nullopt}));
  EXPECT_THAT(Parse(R"({"facts": []})"), IsEmpty());
}

TEST(Extraction, WhatIsSaidTwiceCountsOnce) {
  EXPECT_THAT(Parse(R"({"facts": [{"text": "Ana swims."}, {"text": "ana  swims"}, {"text": " "},
                                  {"text": "Bo", "replaces": 1}, {"text": "Cy", "replaces": 1}]})",
                    1),
              ElementsAre(ExtractedFact{"Ana swims.", std::nullopt}, ExtractedFact{"Bo", 0},
                          ExtractedFact{"Cy", std::nullopt}));
}

TEST(Extraction, AnAnswerThatWasCutKeepsItsWholeFacts) {
  const std::string answer =
      R"({"facts": [{"text": "one", "replaces": null}, {"text": "two", "replaces": null}]})";
  const size_t first = answer.find('}') + 1;
  const size_t second = answer.find('}', first) + 1;
  for (size_t length = 0; length < answer.size(); ++length) {
    const size_t whole = size_t{length >= first} + size_t{length >= second};
    EXPECT_EQ(Parse(answer.substr(0, length), 0, false).size(), whole) << length;
  }
}

TEST(Extraction, WhatIsWrongIsSaidWithoutTheText) {
  for (const char* answer :
       {"", "secret", "[]", "{}", R"({"facts": "secret"})", R"({"facts": ["secret"]})",
        R"({"facts": [{"replaces": null}]})", R"({"facts": [{"text": 5}]})",
        R"({"facts": [{"text": "secret", "replaces": 0}]})",
        R"({"facts": [{"text": "secret", "replaces": 3}]})",
        R"({"facts": [{"text": "secret", "replaces": -1}]})",
        R"({"facts": [{"text": "secret", "replaces": "1"}]})",
        R"({"facts": [{"text": "secret", "replaces": 1.5}]})",
        R"({"facts": [{"text": "secret", "replaces": null}])"}) {
    const auto facts = ParseExtraction(answer, 2, true);
    ASSERT_FALSE(facts) << answer;
    EXPECT_EQ(facts.error().code, Code::kInvalid);
    EXPECT_THAT(facts.error().message, Not(HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace inferscale
