#include "server/chat_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <limits>

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
  EXPECT_THAT(refuse("{" + q + R"(, "n": 9})"),
              HasSubstr("'n' must be a whole number from 1 to 8"));
  EXPECT_THAT(refuse("{" + q + R"(, "n": 2, "memory": {"user": "a", "remember": true}})"),
              HasSubstr("'memory.remember'"));
  EXPECT_THAT(refuse("{" + q + R"(, "logprobs": true, "top_logprobs": 21})"),
              HasSubstr("'top_logprobs' must be a whole number from 0 to 20"));
  EXPECT_THAT(refuse("{" + q + R"(, "top_logprobs": 2})"), HasSubstr("needs 'logprobs'"));
  EXPECT_THAT(refuse("{" + q + R"(, "response_format": "json"})"), HasSubstr("an object"));
  EXPECT_THAT(refuse("{" + q + R"(, "response_format": {"type": "xml"}})"),
              HasSubstr("json_schema"));
  EXPECT_THAT(refuse("{" + q + R"(, "response_format": {"type": "json_schema", "schema": {}}})"),
              HasSubstr("'response_format.json_schema'"));
  EXPECT_THAT(refuse("{" + q + R"(, "tools": [{}]})"), HasSubstr("'tools'"));
  EXPECT_THAT(refuse("{" + q + R"(, "temperature": "hot"})"), HasSubstr("'temperature'"));
  EXPECT_THAT(refuse("{" + q + R"(, "max_tokens": 0})"), HasSubstr("'max_tokens'"));
  EXPECT_THAT(refuse("{" + q + R"(, "memory": {"user": "a", "mode": "x"}})"),
              HasSubstr("'memory.mode'"));
  EXPECT_THAT(refuse("{" + q + R"(, "memory": {"remember": true}})"), HasSubstr("memory.user"));
  EXPECT_THAT(refuse("{" + q + R"(, "memory": {"user": 1}})"), Not(HasSubstr("secret")));
}

TEST(ChatRequest, SeveralAnswersLogprobsAndFormats) {
  const std::string head = R"({"messages": [{"role": "user", "content": "q"}])";
  const ChatRequest plain = Parse(head + R"(, "response_format": {"type": "text"}})");
  EXPECT_EQ(plain.ask.choices, 1U);
  EXPECT_FALSE(plain.ask.sampling.logprobs);
  EXPECT_EQ(plain.ask.sampling.grammar, "");
  const ChatRequest all = Parse(head + R"(, "n": 8, "logprobs": true, "top_logprobs": 3,
      "response_format": {"type": "json_object"}})");
  EXPECT_EQ(all.ask.choices, 8U);
  EXPECT_EQ(all.ask.sampling.logprobs, 3U);
  EXPECT_THAT(all.ask.sampling.grammar, HasSubstr("root ::="));
  EXPECT_EQ(Parse(head + R"(, "logprobs": true})").ask.sampling.logprobs, 0U);
  EXPECT_FALSE(Parse(head + R"(, "logprobs": false})").ask.sampling.logprobs);
  EXPECT_EQ(Parse(head + R"(, "response_format": {"type": "json_schema",
      "json_schema": {"name": "x", "schema": {"type": "array"}}}})")
                .ask.sampling.json_schema,
            R"({"type":"array"})");
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
  const auto text = boost::json::parse(ChatTextChunk(head, {0, "x", {}}));
  EXPECT_EQ(text.at("choices").at(0).at("delta").at("content"), "x");
  EXPECT_TRUE(text.at("choices").at(0).at("finish_reason").is_null());
  answer.finish = FinishReason::kLength;
  const auto last = boost::json::parse(ChatLastChunks(head, answer).at(0));
  EXPECT_EQ(last.at("choices").at(0).at("finish_reason"), "length");
}

TEST(ChatJson, ChoicesHaveTheirPlace) {
  const AnswerHead head{"id-1", "m", 5};
  Answer answer;
  answer.text = "one";
  answer.others.push_back({"two", FinishReason::kLength, {}});
  const auto whole = boost::json::parse(ChatAnswer(head, answer));
  ASSERT_EQ(whole.at("choices").as_array().size(), 2U);
  EXPECT_EQ(whole.at("choices").at(1).at("index"), 1);
  EXPECT_EQ(whole.at("choices").at(1).at("message").at("content"), "two");
  EXPECT_EQ(whole.at("choices").at(1).at("finish_reason"), "length");
  EXPECT_EQ(ChatFirstChunks(head, 2).size(), 2U);
  const auto chunks = ChatLastChunks(head, answer);
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_FALSE(boost::json::parse(chunks[0]).as_object().contains("inferscale"));
  const auto last = boost::json::parse(chunks[1]);
  EXPECT_EQ(last.at("choices").at(0).at("index"), 1);
  EXPECT_TRUE(last.as_object().contains("inferscale"));
}

TEST(ChatJson, LogprobsOfBytesAndText) {
  const float never = -std::numeric_limits<float>::infinity();
  const std::vector<PlaceLogprobs> places = {{{"\xc3", -0.5F}, {{"\xc3", -0.5F}, {"A", never}}},
                                             {{"\xef\xbf\xbd", -1}, {}}};
  const auto chunk = boost::json::parse(ChatTextChunk({"id-1", "m", 5}, {1, "x", places}));
  const auto& content = chunk.at("choices").at(0).at("logprobs").at("content");
  EXPECT_EQ(content.at(0).at("token"), "bytes:\\xc3");
  EXPECT_EQ(content.at(0).at("bytes"), boost::json::array{0xC3});
  EXPECT_EQ(content.at(0).at("logprob"), -0.5);
  EXPECT_EQ(content.at(0).at("top_logprobs").at(1).at("token"), "A");
  EXPECT_EQ(content.at(0).at("top_logprobs").at(1).at("logprob"), -9999.0);
  EXPECT_TRUE(content.at(1).at("bytes").is_null());  // a server that tells only text
  EXPECT_TRUE(content.at(1).at("top_logprobs").as_array().empty());
}

}  // namespace
}  // namespace inferscale
