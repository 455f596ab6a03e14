#include "server/memory_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inferscale {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kNow = 1'717'200'000'000;  // 2024-06-01

std::vector<Fact> Add(const std::string& body) {
  auto add = ParseMemoryAdd(body, "t1", kNow);
  EXPECT_TRUE(add) << body << ": " << add.error().message;
  return add.value_or(MemoryAdd{}).messages;
}

TEST(MemoryAdd, EveryMessageIsAFact) {
  const auto facts = Add(R"({"user_id": "ana", "run_id": "r", "metadata": {"a": {"b": 1}},
      "expiration_date": "2024-06-02", "unknown": 1, "infer": false, "messages": [
      {"role": "system", "content": "no"}, {"role": "user", "content": "one"},
      {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
      {"role": "user", "name": "Bo", "content": "three"}]})");
  ASSERT_EQ(facts.size(), 3U);
  EXPECT_EQ(facts[0].text, "one");
  EXPECT_EQ(facts[0].speaker, "User");
  EXPECT_EQ(facts[0].scope, (Scope{"t1", "ana", "", "r"}));
  EXPECT_EQ(facts[0].metadata, R"({"a":{"b":1}})");
  EXPECT_EQ(facts[0].when_ms, kNow);
  EXPECT_EQ(facts[0].expires_ms, 1'717'372'800'000);  // the end of that day
  EXPECT_EQ(facts[1].text, "two");
  EXPECT_EQ(facts[1].speaker, "Assistant");
  EXPECT_EQ(facts[2].speaker, "Bo");
}

TEST(MemoryAdd, OtherFormsOfMessagesAndIds) {
  const auto text = Add(R"({"filters": {"agent_id": "bot"}, "messages": "hi", "timestamp": 5})");
  ASSERT_EQ(text.size(), 1U);
  EXPECT_EQ(text[0].scope.agent, "bot");
  EXPECT_EQ(text[0].when_ms, 5000);
  EXPECT_EQ(Add(R"({"user_id": "a", "messages": {"role": "user", "content": "x"}})").size(), 1U);
  // No body names a tenant.
  EXPECT_EQ(Add(R"({"user_id": "a", "tenant": "t2", "messages": "x"})")[0].scope.tenant, "t1");
}

TEST(MemoryAdd, FactsAreDrawnFromMessagesIfItSaysSo) {
  EXPECT_FALSE(ParseMemoryAdd(R"({"user_id": "a", "messages": "x"})", "t1", kNow)->infer);
  EXPECT_TRUE(
      ParseMemoryAdd(R"({"user_id": "a", "messages": "x", "infer": true})", "t1", kNow)->infer);
}

TEST(MemoryAdd, WhatIsWrongIsSaidWithoutTheText) {
  const auto refuse = [](const std::string& more) {
    const auto facts = ParseMemoryAdd(
        R"({"messages": [{"role": "user", "content": "secret"}])" + more + "}", "t1", kNow);
    EXPECT_FALSE(facts) << more;
    return facts ? std::string() : facts.error().message;
  };
  EXPECT_THAT(refuse(""), HasSubstr("At least one identifier"));
  EXPECT_THAT(refuse(R"(, "user_id": "")"), HasSubstr("At least one identifier"));
  EXPECT_THAT(refuse(R"(, "user_id": 5)"), HasSubstr("'user_id'"));
  EXPECT_THAT(refuse(R"(, "user_id": "a", "infer": "yes")"), HasSubstr("'infer'"));
  EXPECT_THAT(refuse(R"(, "user_id": "a", "app_id": "x")"), HasSubstr("'app_id'"));
  EXPECT_THAT(refuse(R"(, "user_id": "a", "memory_type": "x")"), HasSubstr("'memory_type'"));
  EXPECT_THAT(refuse(R"(, "user_id": "a", "metadata": "secret")"), HasSubstr("'metadata'"));
  for (const char* day :
       {"\"soon\"", "\"2024-13-01\"", "\"2024-05-30\"", "7", "\"2024-07-01T00\""}) {
    EXPECT_THAT(refuse(std::string(R"(, "user_id": "a", "expiration_date": )") + day),
                HasSubstr("'expiration_date'"));
  }
  EXPECT_THAT(refuse(R"(, "user_id": "a", "timestamp": "secret")"),
              testing::AllOf(HasSubstr("'timestamp'"), Not(HasSubstr("secret"))));
  for (const char* body :
       {"", "[]", "{", R"({"user_id": "a"})", R"({"user_id": "a", "messages": []})",
        R"({"user_id": "a", "messages": [1]})",
        R"({"user_id": "a", "messages": [{"role": "user"}]})",
        R"({"user_id": "a", "messages": [{"content": [{"type": "image_url"}]}]})"}) {
    EXPECT_FALSE(ParseMemoryAdd(body, "t1", kNow)) << body;
  }
}

MemorySearch Search(const std::string& more) {
  auto search = ParseMemorySearch(R"({"query": "q", )" + more + "}", "t1");
  EXPECT_TRUE(search) << more << ": " << search.error().message;
  return search ? *std::move(search) : MemorySearch{};
}

TEST(MemorySearch, UsersAreFoundInFilters) {
  const auto users = [](const std::string& filters) {
    const MemorySearch search = Search(R"("filters": )" + filters);
    return search.where.users.value_or(std::vector<std::string>{"any"});
  };
  EXPECT_THAT(users(R"({"user_id": "a"})"), ElementsAre("a"));
  EXPECT_THAT(users(R"({"user_id": {"eq": "a"}})"), ElementsAre("a"));
  EXPECT_THAT(users(R"({"user_id": {"in": ["b", "a"]}})"), ElementsAre("a", "b"));
  EXPECT_THAT(users(R"({"AND": [{"user_id": "a"}, {"x": 1}]})"), ElementsAre("a"));
  EXPECT_THAT(users(R"({"OR": [{"user_id": "a"}, {"user_id": "b"}]})"), ElementsAre("a", "b"));
  EXPECT_THAT(users(R"({"AND": [{"user_id": "a"}, {"user_id": "b"}]})"), ElementsAre());
  for (const char* any : {R"({})", R"({"user_id": "*"})", R"({"user_id": {"ne": "a"}})",
                          R"({"OR": [{"user_id": "a"}, {"x": 1}]})", R"({"agent_id": "a"})",
                          R"({"NOT": [{"user_id": "a"}]})", R"({"user_id": {"in": ["a", "*"]}})"}) {
    EXPECT_THAT(users(any), ElementsAre("any")) << any;
  }
  const MemorySearch both = Search(R"("user_id": "a", "filters": {"agent_id": "bot"})");
  EXPECT_THAT(*both.where.users, ElementsAre("a"));
  EXPECT_EQ(both.where.scope, (Scope{"t1", "", "bot", ""}));
}

TEST(MemorySearch, FiltersDecide) {
  Fact fact;
  fact.scope = {"t1", "a", "bot", ""};
  fact.metadata = R"({"topic": "tea", "categories": ["food", "home"]})";
  fact.created_ms = kNow;
  const auto passes = [&](const std::string& more) {
    return Search(more).where.filter.Matches(fact);
  };
  EXPECT_TRUE(passes(R"("filters": {"metadata": {"topic": "tea"}})"));
  EXPECT_FALSE(passes(R"("filters": {"OR": [{"metadata": {"topic": "x"}}, {"user_id": "b"}]})"));
  EXPECT_TRUE(passes(R"("metadata": {"topic": "tea"}, "user_id": "a")"));
  EXPECT_FALSE(passes(R"("metadata": {"topic": "x"})"));
  EXPECT_TRUE(passes(R"("categories": ["work", "food"])"));
  EXPECT_FALSE(passes(R"("categories": ["work"])"));
  EXPECT_FALSE(passes(R"("user_id": "b")"));
  EXPECT_TRUE(passes(R"("start_date": "2024-06-01", "end_date": "2024-06-01")"));
  EXPECT_FALSE(passes(R"("start_date": "2024-06-02")"));
  EXPECT_FALSE(passes(R"("end_date": "2024-05-31")"));
  EXPECT_TRUE(passes(R"("rerank": true, "fields": ["id"], "org_id": "x")"));  // ignored
}

TEST(MemorySearch, WrongOnesAreRefused) {
  for (const char* body :
       {"{}", R"({"query": ""})", R"({"query": 1})", R"({"query": "q", "top_k": -1})",
        R"({"query": "q", "top_k": 1e99})", R"({"query": "q", "threshold": "x"})",
        R"({"query": "q", "filters": []})", R"({"query": "q", "filters": {"a": {"like": 1}}})",
        R"({"query": "q", "categories": "x"})", R"({"query": "q", "start_date": "x"})"}) {
    EXPECT_FALSE(ParseMemorySearch(body, "t1")) << body;
  }
  std::string deep = R"({"query": "q", "filters": )";
  for (int i = 0; i < 500; ++i) deep += R"({"NOT": )";
  EXPECT_FALSE(ParseMemorySearch(deep, "t1"));
}

TEST(MemoryDelete, NamesSomebody) {
  const auto scope = [](const std::string& query) {
    return ParseDeleteScope(*QueryParams::Parse(query), "t1");
  };
  EXPECT_EQ(*scope("user_id=a%20b&run_id=r"), (Scope{"t1", "a b", "", "r"}));
  for (const char* query : {"", "user_id=", "user_id=*", "user_id=%2A", "user_id=a&app_id=b",
                            "filters=%7B%7D", "user_id=a&x=1"}) {
    EXPECT_FALSE(scope(query)) << query;
  }
}

TEST(MemoryChange, UpdatesAndBatches) {
  const auto update = ParseMemoryUpdate(
      R"({"text": "new", "metadata": {"a": null}, "expiration_date": null, "timestamp": 7})");
  ASSERT_TRUE(update);
  EXPECT_EQ(update->update.text, "new");
  EXPECT_EQ(update->update.when_ms, 7000);
  ASSERT_TRUE(update->update.expires_ms);
  EXPECT_FALSE(*update->update.expires_ms);
  EXPECT_EQ(MergeMetadata(R"({"a":1,"b":2})", *update->metadata), R"({"b":2})");
  for (const char* body : {"{}", R"({"text": null})", R"({"text": 1})", R"({"metadata": []})"}) {
    EXPECT_FALSE(ParseMemoryUpdate(body)) << body;
  }
  const auto batch = ParseBatchUpdate(R"({"memories": [{"memory_id": "1", "text": "x"}]})");
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->front().id, "1");
  EXPECT_THAT(*ParseBatchDelete(R"({"memories": [{"memory_id": "1"}, {"memory_id": "2"}]})"),
              ElementsAre("1", "2"));
  for (const char* body : {"{}", R"({"memories": []})", R"({"memories": [1]})",
                           R"({"memories": [{}]})", R"({"memories": [{"memory_id": ""}]})"}) {
    EXPECT_FALSE(ParseBatchDelete(body)) << body;
    EXPECT_FALSE(ParseBatchUpdate(body)) << body;
  }
}

TEST(MemoryJson, AFactAsMem0HasIt) {
  Fact fact;
  fact.id = "i";
  fact.text = "x";
  fact.scope.user = "ana";
  fact.expires_ms = 1'717'372'800'000;
  fact.created_ms = kNow + 5;
  const auto json = MemoryToJson(fact);
  EXPECT_EQ(json.at("memory"), "x");
  EXPECT_EQ(json.at("user_id"), "ana");
  EXPECT_TRUE(json.at("agent_id").is_null());
  EXPECT_EQ(json.at("expiration_date"), "2024-06-02");
  EXPECT_EQ(json.at("created_at"), "2024-06-01T00:00:00.005Z");
  EXPECT_EQ(HistoryToJson({"i", 1, "DELETE", "", "", 0}, 3).at("is_deleted"), true);
}

}  // namespace
}  // namespace inferscale
