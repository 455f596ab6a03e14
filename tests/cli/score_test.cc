#include "cli/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inferscale {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

AppOptions Defaults() {
  AppOptions options;
  options.data_dir = "/default";
  return options;
}

std::string Problem(std::string_view line) {
  const auto request = ParseScoreRequest(line, Defaults());
  if (request) return "";
  EXPECT_EQ(request.error().code, Code::kInvalid);
  return request.error().message;
}

TEST(ScoreRequest, TakesWhatItSaysAndTheRestFromTheOptions) {
  const std::string_view line =
      R"({"user": "u", "question": "Who?", "gold": "Ana", "options": ["Bo", "Cy"], "seed": 7,)"
      R"( "show": true, "max_tokens": 5, "arms": [{"memory": "text"},)"
      R"x( {"memory": "kv", "data_dir": "/d", "window": "window(5)", "episode": 1,)x"
      R"( "codec": "int8", "facts": 20, "plain": 0}]})";
  const auto request = ParseScoreRequest(line, Defaults());
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->user, "u");
  EXPECT_EQ(request->question, "Who?");
  EXPECT_EQ(request->gold, "Ana");
  EXPECT_THAT(request->options, ElementsAre("Bo", "Cy"));
  EXPECT_EQ(request->seed, 7U);
  EXPECT_TRUE(request->show);
  EXPECT_EQ(request->max_tokens, 5U);
  ASSERT_EQ(request->arms.size(), 2U);
  const ScoreArm& text = request->arms[0];
  EXPECT_EQ(text.memory, ScoreMemory::kText);
  EXPECT_EQ(text.data_dir, "/default");
  EXPECT_EQ(text.window, Defaults().window);
  EXPECT_EQ(text.episode, Defaults().episode_facts);
  EXPECT_EQ(text.compose.facts, Defaults().compose.facts);
  const ScoreArm& kv = request->arms[1];
  EXPECT_EQ(kv.memory, ScoreMemory::kKv);
  EXPECT_EQ(kv.data_dir, "/d");
  EXPECT_EQ(kv.window.ToString(), "window(5)");
  EXPECT_EQ(kv.episode, 1U);
  EXPECT_EQ(kv.codec, KvCodec::kInt8);
  EXPECT_EQ(kv.compose.facts, 20U);
  EXPECT_EQ(kv.compose.plain_last, 0U);
}

TEST(ScoreRequest, SaysWhichMemberIsWrong) {
  EXPECT_THAT(Problem("nonsense"), HasSubstr("JSON"));
  EXPECT_THAT(Problem("[]"), HasSubstr("JSON object"));
  EXPECT_THAT(Problem(R"({"question": "q", "arms": [{"memory": "kv"}]})"), HasSubstr("'user'"));
  EXPECT_THAT(Problem(R"({"user": "u", "arms": [{"memory": "kv"}]})"), HasSubstr("'question'"));
  EXPECT_THAT(Problem(R"({"user": "u", "question": "q"})"), HasSubstr("'arms'"));
  EXPECT_THAT(Problem(R"({"user": "u", "question": "q", "show": 1})"), HasSubstr("'show'"));
  EXPECT_THAT(Problem(R"({"user": "u", "question": "q", "arms": []})"), HasSubstr("'arms'"));
  const auto arm = [](const std::string& members) {
    return R"({"user": "u", "question": "secret", "arms": [{)" + members + "}]}";
  };
  EXPECT_THAT(Problem(arm("")), HasSubstr("'memory'"));
  EXPECT_THAT(Problem(arm(R"("memory": "magic")")), HasSubstr("'memory'"));
  EXPECT_THAT(Problem(arm(R"("memory": "kv", "facts": -1)")), HasSubstr("'facts'"));
  EXPECT_THAT(Problem(arm(R"("memory": "kv", "episode": 0)")), HasSubstr("'episode'"));
  EXPECT_THAT(Problem(arm(R"("memory": "kv", "plain": 0.5)")), HasSubstr("'plain'"));
  EXPECT_THAT(Problem(arm(R"("memory": "kv", "window": "anchor")")), HasSubstr("anchor(N)"));
  EXPECT_THAT(Problem(arm(R"("memory": "kv", "codec": "int2")")), HasSubstr("int8"));
  EXPECT_THAT(Problem(arm("")), Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace inferscale
