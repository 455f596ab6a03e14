#include <gtest/gtest.h>

#include <map>

#include "memory/import.h"

namespace inferscale {
namespace {

struct Imported {
  Status status;
  std::vector<Fact> facts;
  std::vector<std::string> bad;
  std::map<std::string, uint64_t> dropped;
};

Imported Import(std::string_view content, ImportFormat format, const Fact& defaults = {}) {
  Imported out;
  out.status = ParseImport(
      content, format, defaults,
      {[&](Fact&& fact) -> Status {
         out.facts.push_back(std::move(fact));
         return {};
       },
       [&](const Error& error) { out.bad.push_back(error.message); },
       [&](std::string_view what, uint64_t count) { out.dropped[std::string(what)] += count; }});
  return out;
}

int64_t Ms(std::string_view text) { return ParseTime(text).value(); }

using Dropped = std::map<std::string, uint64_t>;

TEST(ImportMem0Test, KeepsScopesTimesAndMetadata) {
  const auto got = Import(R"({"count": 2, "next": null, "previous": null, "results": [
      {"id": "7f0b", "memory": "Iris keeps bees", "user_id": "iris", "agent_id": "bot",
       "run_id": "r1", "actor_id": "Iris", "hash": "c0ffee", "metadata": {"topic": "garden"},
       "categories": ["hobbies"], "immutable": false, "expiration_date": "2999-01-31",
       "created_at": "2025-06-02T08:00:00.123456-07:00", "updated_at": "2025-06-03T08:00:00Z",
       "score": 0.5, "Owner's note": "x", "": 1},
      {"id": "7f0a", "memory": "Iris has two hives", "user_id": "iris", "metadata": null,
       "created_at": "2025-06-01T08:00:00Z"}], "relations": [{"source": "iris"}]})",
                          ImportFormat::kMem0);
  ASSERT_TRUE(got.status) << got.status.error().message;
  EXPECT_TRUE(got.bad.empty());
  ASSERT_EQ(got.facts.size(), 2U);
  EXPECT_EQ(got.facts[0].text, "Iris has two hives");  // the older one
  EXPECT_EQ(got.facts[0].metadata, R"({"mem0_id":"7f0a"})");
  const Fact& fact = got.facts[1];
  EXPECT_EQ(fact.text, "Iris keeps bees");
  EXPECT_EQ(fact.scope.user, "iris");
  EXPECT_EQ(fact.scope.agent, "bot");
  EXPECT_EQ(fact.scope.run, "r1");
  EXPECT_EQ(fact.speaker, "Iris");
  EXPECT_EQ(fact.when_ms, Ms("2025-06-02T15:00:00.123Z"));
  EXPECT_EQ(fact.expires_ms, Ms("2999-02-01"));
  EXPECT_EQ(fact.metadata, R"({"topic":"garden","mem0_id":"7f0b","categories":["hobbies"]})");
  EXPECT_EQ(
      got.dropped,
      (Dropped{
          {"hash", 1}, {"other fields", 2}, {"relations", 1}, {"score", 1}, {"updated_at", 1}}));
}

TEST(ImportMem0Test, TakesAPlainListAndSaysWhatIsWrong) {
  Fact defaults;
  defaults.scope = {"acme", "nobody", "", ""};
  const auto got = Import(R"([{"memory": "Iris keeps bees"}, "x", {"memory": "  "}, {"memory": 5},
      {"memory": "a", "created_at": "soon"}, {"memory": "b", "metadata": []}])",
                          ImportFormat::kMem0, defaults);
  ASSERT_TRUE(got.status);
  ASSERT_EQ(got.facts.size(), 1U);
  EXPECT_EQ(got.facts[0].scope, defaults.scope);
  EXPECT_EQ(got.facts[0].when_ms, std::nullopt);
  ASSERT_EQ(got.bad.size(), 5U);
  EXPECT_EQ(got.bad[0], "memory 2: not a JSON object");
  EXPECT_EQ(got.bad[1], "memory 3: it has no memory");
  EXPECT_EQ(got.bad[2], "memory 4: memory is not a text");
  EXPECT_NE(got.bad[3].find("memory 5: said_at is not a time"), std::string::npos) << got.bad[3];
  EXPECT_EQ(got.bad[4], "memory 6: metadata is not a JSON object");
  for (const char* content :
       {"", "{", "[", "5", R"({"error": "no"})", R"({"results": {}})", "\xFF"}) {
    const auto refused = Import(content, ImportFormat::kMem0);
    ASSERT_FALSE(refused.status) << content;
    EXPECT_EQ(refused.status.error().code, Code::kInvalid);
  }
  EXPECT_TRUE(Import("[]", ImportFormat::kMem0).status);
}

TEST(ImportZepTest, DatesFactsByWhenTheyAreTrue) {
  const auto got = Import(R"({"edges": [
      {"uuid": "e2", "fact": "Tom works in Ghent", "name": "WORKS_IN", "user_id": "tom",
       "created_at": "2025-03-09T10:00:00Z", "valid_at": "2025-03-01T00:00:00Z",
       "source_node_uuid": "n1", "target_node_uuid": "n2", "episodes": ["m1"],
       "attributes": {"sure": true}},
      {"uuid": "e1", "fact": "Tom works in Liege", "created_at": "2024-03-09T10:00:00Z",
       "invalid_at": "2025-03-01T00:00:00Z", "expired_at": "2025-03-09T10:00:00Z"}],
      "nodes": [{"name": "Tom", "summary": "a man"}]})",
                          ImportFormat::kZep);
  ASSERT_TRUE(got.status) << got.status.error().message;
  EXPECT_TRUE(got.bad.empty());
  ASSERT_EQ(got.facts.size(), 2U);
  EXPECT_EQ(got.facts[0].text, "Tom works in Liege");
  EXPECT_EQ(got.facts[0].when_ms, Ms("2024-03-09T10:00:00Z"));
  EXPECT_EQ(got.facts[0].expires_ms, Ms("2025-03-01"));
  EXPECT_EQ(got.facts[1].scope.user, "tom");
  EXPECT_EQ(got.facts[1].when_ms, Ms("2025-03-01"));
  EXPECT_EQ(got.facts[1].expires_ms, std::nullopt);
  EXPECT_EQ(got.facts[1].metadata,
            R"({"zep_id":"e2","relation":"WORKS_IN","attributes":{"sure":true}})");
  EXPECT_EQ(
      got.dropped,
      (Dropped{{"episodes", 1}, {"nodes", 1}, {"source_node_uuid", 1}, {"target_node_uuid", 1}}));
}

TEST(ImportZepTest, TakesMessagesOfThreads) {
  const auto got = Import(R"([{"thread_id": "t1", "user_id": "tom", "row_count": 3, "messages": [
      {"uuid": "m1", "role": "user", "name": "Tom", "content": "I start in Ghent on Monday.",
       "created_at": "2025-02-27T09:00:00Z", "processed": true},
      {"role": "system", "content": "Be brief."},
      {"role": "assistant", "content": "Good luck!", "metadata": {"mood": "glad"}}]},
      {"messages": [{"role_type": "user", "role": "Ann", "content": "Hello"},
                    {"role": "user", "content": ""}, 7]}])",
                          ImportFormat::kZep);
  ASSERT_TRUE(got.status) << got.status.error().message;
  ASSERT_EQ(got.facts.size(), 3U);
  EXPECT_EQ(got.facts[0].text, "Good luck!");  // nobody knows when
  EXPECT_EQ(got.facts[0].speaker, "assistant");
  EXPECT_EQ(got.facts[0].metadata, R"({"mood":"glad"})");
  EXPECT_EQ(got.facts[1].speaker, "Ann");
  EXPECT_EQ(got.facts[1].scope.run, "");
  EXPECT_EQ(got.facts[2].speaker, "Tom");
  EXPECT_EQ(got.facts[2].scope.user, "tom");
  EXPECT_EQ(got.facts[2].scope.run, "t1");
  EXPECT_EQ(got.facts[2].when_ms, Ms("2025-02-27T09:00:00Z"));
  EXPECT_EQ(got.bad, (std::vector<std::string>{"item 2, message 2: it has no content",
                                               "item 2, message 3: neither a message nor a fact"}));
  EXPECT_EQ(got.dropped,
            (Dropped{{"messages that nobody said", 1}, {"processed", 1}, {"row_count", 1}}));
  EXPECT_FALSE(Import(R"({"nodes": []})", ImportFormat::kZep).status);
  EXPECT_FALSE(Import(R"([{"a": 1}])", ImportFormat::kZep).status);
}

TEST(ImportLettaTest, ReadsAnAgentFile) {
  const auto got = Import(R"({"agents": [{"id": "agent-0", "name": "helper", "system": "Help.",
      "block_ids": ["block-0", "block-1"], "messages": [
        {"id": "message-0", "role": "system", "content": [{"type": "text", "text": "Help."}]},
        {"id": "message-1", "role": "user", "created_at": "2025-08-28T00:58:01.695247+00:00",
         "content": [{"type": "text", "text":
           "{\"type\": \"user_message\", \"message\": \"My boat is called Skua.\"}"}]},
        {"role": "user", "content": "{\"type\": \"heartbeat\", \"reason\": \"time\"}"},
        {"role": "assistant", "content": [{"type": "text", "text": "They like boats."}],
         "created_at": "2025-08-28T00:58:02Z", "tool_calls": [{"function":
           {"name": "send_message", "arguments": "{\"message\": \"A good name.\"}"}}]},
        {"role": "assistant", "content": "I note it.", "tool_calls": [{"function":
           {"name": "memory_insert", "arguments": "{}"}}]},
        {"role": "tool", "content": "ok"},
        {"role": "assistant", "content": "Anything else?", "created_at": "2025-08-28T00:59:00Z"}]},
      {"name": "other", "block_ids": ["block-1"], "messages": []}],
      "blocks": [{"id": "block-0", "label": "human", "limit": 5000, "description": "who it is",
                  "value": "Likes boats.\n\nLives in Bergen.\n", "metadata": {}},
                 {"id": "block-1", "label": "shared", "value": "The office is closed in July."}],
      "files": [], "sources": [], "tools": [{"name": "send_message"}], "groups": [],
      "metadata": {"revision_id": "1"}, "created_at": "2025-08-28T00:59:01Z"})",
                          ImportFormat::kLetta);
  ASSERT_TRUE(got.status) << got.status.error().message;
  EXPECT_TRUE(got.bad.empty());
  std::vector<std::string> lines;
  for (const Fact& fact : got.facts) {
    lines.push_back(fact.scope.agent + "|" + fact.speaker + "|" + fact.text + "|" + fact.metadata);
  }
  EXPECT_EQ(lines, (std::vector<std::string>{
                       R"(helper||Likes boats.|{"letta_block":"human"})",
                       R"(helper||Lives in Bergen.|{"letta_block":"human"})",
                       R"(||The office is closed in July.|{"letta_block":"shared"})",
                       R"(helper|user|My boat is called Skua.|{})",
                       R"(helper|assistant|A good name.|{})",
                       R"(helper|assistant|Anything else?|{})",
                   }));
  EXPECT_EQ(got.facts[3].when_ms, Ms("2025-08-28T00:58:01.695Z"));
  EXPECT_EQ(
      got.dropped,
      (Dropped{{"description", 1}, {"limit", 1}, {"messages that nobody said", 4}, {"tools", 1}}));
}

TEST(ImportLettaTest, ReadsTheOlderAgentFile) {
  const auto got = Import(R"({"agent_type": "memgpt_agent", "name": "helper", "core_memory": [
      {"label": "human", "value": "Likes boats."}], "messages": [
      {"role": "user", "text": "Good evening.", "created_at": "2025-01-02T03:04:05Z"}]})",
                          ImportFormat::kLetta);
  ASSERT_TRUE(got.status);
  ASSERT_EQ(got.facts.size(), 2U);
  EXPECT_EQ(got.facts[0].text, "Likes boats.");
  EXPECT_EQ(got.facts[1].text, "Good evening.");
  EXPECT_EQ(got.facts[1].scope.agent, "helper");
}

TEST(ImportLettaTest, ReadsPassagesAndBlocks) {
  const auto got = Import(R"([{"id": "passage-1", "text": "Skua needs a new mast.",
      "tags": ["boat"], "created_at": "2025-05-01T00:00:00Z", "agent_id": "agent-9",
      "embedding": [0.5], "metadata": {"seen": 1}}, {"label": "human", "value": "Lives in Bergen."},
      {"text": " "}, {"name": "x"}])",
                          ImportFormat::kLetta);
  ASSERT_TRUE(got.status);
  ASSERT_EQ(got.facts.size(), 2U);
  EXPECT_EQ(got.facts[0].text, "Lives in Bergen.");
  EXPECT_EQ(got.facts[1].scope.agent, "agent-9");
  EXPECT_EQ(got.facts[1].metadata, R"({"seen":1,"letta_id":"passage-1","tags":["boat"]})");
  EXPECT_EQ(got.bad, (std::vector<std::string>{"item 3: it has no text",
                                               "item 4: neither a passage nor a block"}));
  EXPECT_EQ(got.dropped, (Dropped{{"embedding", 1}}));
  EXPECT_EQ(
      Import(R"({"passages": [{"text": "a"}], "blocks": [{"value": "b"}]})", ImportFormat::kLetta)
          .facts.size(),
      2U);
  for (const char* content : {"{}", "3", R"([{"a": 1}])", R"({"agents": 1})", "not JSON"}) {
    EXPECT_FALSE(Import(content, ImportFormat::kLetta).status) << content;
  }
}

TEST(ImportPeersTest, StopsWhenTheSinkDoes) {
  for (const auto& [format, content] : {
           std::pair(ImportFormat::kMem0, R"([{"memory": "a"}, {"memory": "b"}])"),
           std::pair(ImportFormat::kZep, R"([{"fact": "a"}, {"fact": "b"}])"),
           std::pair(ImportFormat::kLetta, R"([{"text": "a"}, {"text": "b"}])"),
       }) {
    int calls = 0;
    const Status status = ParseImport(content, format, {},
                                      {[&](Fact&&) -> Status {
                                         ++calls;
                                         return Fail(Code::kTransient, "full");
                                       },
                                       [](const Error&) {}});
    EXPECT_EQ(status.error().message, "full");
    EXPECT_EQ(calls, 1);
  }
}

}  // namespace
}  // namespace inferscale
