#include "server/chat_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace inferscale {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ChatRequest Parse(const std::string& body) {
  auto request = ParseChatRequest(body, {});
  EXPECT_TRUE(request) << body << ": " << request.error().message;
  return request ? std::move(*request) : ChatRequest{};
}

TEST(ChatRequest, TheLastMessageIsTheQuestion) {
  const ChatRequest request = Parse(R"({"model": "m", "messages": [
      {"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"},
      {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"},
      {"role": "user", "content": [{"type": "text", "text": "fo"}, {"type": "text", "text": "ur"}]}]})");
  EXPECT_EQ(request.ask.question, "three\n\nfour");
  ASSERT_EQ(request.ask.before.size(), 1U);
  EXPECT_EQ(request.ask.before[0].user, "Be brief.\n\none");
  EXPECT_EQ(request.ask.before[0].assistant, "two");
  EXPECT_EQ(request.ask.mode, MemoryMode::kNone);  // nobody's memory
  EXPECT_FALSE(request.stream);
}

TEST(ChatRequest, MemoryAndSampling) {
  const std::string head = R"({"messages": [{"role": "user", "content": "q"}], )";
  const ChatRequest request = Parse(head + R"("user": "bo", "stream": true, "max_tokens": 7,
      "temperature": 0.5, "stop": ["x"], "stream_options": {"include_usage": true},
      "memory": {"user": "ana", "mode": "text", "k": 3, "remember": true}})");
  EXPECT_EQ(request.ask.scope.user, "ana");
  EXPECT_EQ(request.ask.scope.tenant, "default");
  EXPECT_EQ(request.ask.mode, MemoryMode::kText);
  EXPECT_EQ(request.ask.compose.facts, 3U);
  EXPECT_TRUE(request.remember && request.stream && request.include_usage);
  EXPECT_EQ(request.ask.sampling.max_tokens, 7U);
  EXPECT_EQ(request.ask.sampling.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(Parse(head + R"("user": "bo"})").ask.mode, MemoryMode::kKv);
  // No body names a tenant.
  EXPECT_EQ(
      Parse(head + R"("tenant": "x", "memory": {"user": "a", "tenant": "x"}})").ask.scope.tenant,
      "default");
}

TEST(ChatRequest, WhatIsWrongIsSaidWithoutTheText) {
  const auto refuse = [](const std::string& body) {
    const auto request = ParseChatRequest(body, {});
    EXPECT_FALSE(request) << body;
    return request ? std::string() : request.error().message;
  };
  const std::string q = R"("messages": [{"role": "user", "content": "secret"}])";
  EXPECT_THAT(refuse("{"), HasSubstr("not JSON"));
  EXPECT_THAT(refuse("[]"), HasSubstr("object"));
  EXPECT_THAT(refuse("{}"), HasSubstr("'messages'"));
  EXPECT_THAT(refuse(R"({"messages": []})"), HasSubstr("'messages'"));
  EXPECT_THAT(refuse(R"({"messages": [{"role": "assistant", "content": "x"}]})"),
              HasSubstr("last message"));
  EXPECT_THAT(refuse(R"({"messages": [{"role": "user", "content": ""}]})"), HasSubstr("empty"));
  EXPECT_THAT(refuse(R"({"messages": [{"role": "tool", "content": "x"}]})"), HasSubstr("roles"));
  EXPECT_THAT(refuse(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"),
              HasSubstr("only text"));
  EXPECT_THAT(refuse("{" + q + R"(, "n": 2})"), HasSubstr("'n'"));
  EXPECT_THAT(refuse("{" + q + R"(, "tools": [{}]})"), HasSubstr("'tools'"));
  EXPECT_THAT(refuse("{" + q + R"(, "temperature": "hot"})"), HasSubstr("'temperature'"));
  EXPECT_THAT(refuse("{" + q + R"(, "max_tokens": 0})"), HasSubstr("'max_tokens'"));
  EXPECT_THAT(refuse("{" + q + R"(, "memory": {"user": "a", "mode": "x"}})"),
              HasSubstr("'memory.mode'"));
  EXPECT_THAT(refuse("{" + q + R"(, "memory": {"remember": true}})"), HasSubstr("memory.user"));
  EXPECT_THAT(refuse("{" + q + R"(, "memory": {"user": 1}})"), Not(HasSubstr("secret")));
}

TEST(ChatJson, PartsOfAnAnswer) {
  const AnswerHead head{"id-1", "m", 5};
  Answer answer;
  answer.text = "a \"quote\"\n";
  answer.stats.prompt_tokens = 30;
  answer.stats.injected_tokens = 20;
  answer.stats.generated_tokens = 4;
  answer.facts.emplace_back();
  answer.facts[0].fact.text = "f";
  const auto whole = boost::json::parse(ChatAnswer(head, answer));
  EXPECT_EQ(std::string(whole.at("choices").at(0).at("message").at("content").as_string()),
            answer.text);
  EXPECT_EQ(whole.at("usage").at("total_tokens"), 34);
  EXPECT_EQ(whole.at("usage").at("prompt_tokens_details").at("cached_tokens"), 20);
  EXPECT_EQ(whole.at("inferscale").at("facts").at(0).at("text"), "f");
  const auto text = boost::json::parse(ChatTextChunk(head, "x"));
  EXPECT_EQ(text.at("choices").at(0).at("delta").at("content"), "x");
  EXPECT_TRUE(text.at("choices").at(0).at("finish_reason").is_null());
  answer.finish = FinishReason::kLength;
  const auto last = boost::json::parse(ChatLastChunk(head, answer));
  EXPECT_EQ(last.at("choices").at(0).at("finish_reason"), "length");
}

}  // namespace
}  // namespace inferscale
