// The Model Context Protocol over stand-ins of the memory routes: forms, versions, access.
#include "server/mcp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inferscale {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kMeta = R"("_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                                       "io.modelcontextprotocol/clientCapabilities": {}})";

class McpTest : public testing::Test {
 protected:
  McpTest() : server_(Routes()) {}

  // Each notes what it was asked and answers {"ok": true}; to read is open to all keys.
  std::vector<Route> Routes() {
    std::vector<Route> routes;
    for (const McpTool& tool : McpTools()) {
      const bool reads = tool.name.starts_with("get") || tool.name.starts_with("search") ||
                         tool.name.starts_with("list");
      routes.push_back({std::string(tool.method), std::string(tool.path),
                        reads ? Access::kRead : Access::kWrite, "",
                        [this, reads](const Call& call, HttpResponder& responder) {
                          asked_ = call.request.method + " " + call.request.body;
                          for (const std::string& param : call.params) asked_ += " " + param;
                          for (const auto& [name, value] : call.query.all()) {
                            asked_ += " " + name + "=" + value;
                          }
                          EXPECT_TRUE(reads || call.caller.access >= Access::kWrite);
                          responder.Send(200, R"({"ok":true})");
                        }});
    }
    return routes;
  }

  json::value Ask(const std::string& text,
                  std::optional<McpMessage::Headers> headers = std::nullopt) {
    answer_ = server_.Answer({text, caller_, user_, headers});
    EXPECT_FALSE(answer_.text.empty()) << text;
    return json::parse(answer_.text);
  }
  json::value UseTool(const std::string& tool, const std::string& arguments) {
    return Ask(R"({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": ")" +
               tool + R"(", "arguments": )" + arguments + "}}")
        .at("result");
  }
  static int64_t CodeOf(const json::value& answer) {
    return answer.at("error").at("code").as_int64();
  }

  std::string asked_;
  Caller caller_{"t", Access::kWrite, {}};
  std::string user_ = "ana";
  McpServer server_;
  McpAnswer answer_;
};

TEST_F(McpTest, CallsAreRequestsToRoutes) {
  const json::value result = UseTool("add_memory", R"({"text": "a", "metadata": {"n": 1}})");
  EXPECT_EQ(result.at("isError"), false);
  EXPECT_EQ(result.at("structuredContent").at("ok"), true);
  EXPECT_EQ(result.at("content").at(0).at("text"), R"({"ok":true})");
  EXPECT_EQ(asked_, R"(POST {"messages":"a","user_id":"ana","metadata":{"n":1}})");
  UseTool("add_memory", R"({"text": "a", "infer": true})");
  EXPECT_EQ(asked_, R"(POST {"messages":"a","user_id":"ana","infer":true})");
  EXPECT_EQ(UseTool("add_memory", R"({"text": "a", "infer": "yes"})").at("isError"), true);
  UseTool("get_memory", R"({"memory_id": "a/../b"})");
  EXPECT_EQ(asked_, "GET {} a/../b");
  UseTool("get_memories", R"({"page": 2, "page_size": null})");
  EXPECT_EQ(asked_, R"(POST {"user_id":"ana"} page=2)");
  UseTool("delete_all_memories", R"({"agent_id": "b&user_id=x"})");
  EXPECT_EQ(asked_, "DELETE {} agent_id=b&user_id=x");
}

TEST_F(McpTest, TheClientsOwnUserIsMeantIfNobodyIsNamed) {
  for (const char* named :
       {R"({"query": "x", "run_id": "r"})", R"({"query": "x", "filters": {"user_id": "bo"}})",
        R"({"query": "x", "filters": {"NOT": [{"AND": [{"agent_id": "*"}]}]}})"}) {
    UseTool("search_memories", named);
    EXPECT_THAT(asked_, Not(HasSubstr("ana"))) << named;
  }
  UseTool("search_memories", R"({"query": "x", "filters": {"topic": "user_id"}})");
  EXPECT_THAT(asked_, HasSubstr(R"("user_id":"ana")"));
  UseTool("delete_all_memories", "{}");
  EXPECT_EQ(asked_, "DELETE {} user_id=ana");
  UseTool("delete_entities", "{}");
  EXPECT_EQ(asked_, "DELETE {}");  // which the route refuses
  user_ = "";
  UseTool("delete_all_memories", "{}");
  EXPECT_EQ(asked_, "DELETE {}");
}

TEST_F(McpTest, WhoMayNotWriteHasNoToolsForIt) {
  caller_.access = Access::kRead;
  const json::value list = Ask(R"({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})");
  std::vector<std::string> names;
  for (const json::value& tool : list.at("result").at("tools").as_array()) {
    names.emplace_back(tool.at("name").as_string());
    EXPECT_EQ(tool.at("annotations").at("readOnlyHint"), true);
  }
  EXPECT_THAT(names, ElementsAre("search_memories", "get_memories", "get_memory", "list_entities"));
  EXPECT_EQ(UseTool("delete_memory", R"({"memory_id": "x"})").at("isError"), true);
  EXPECT_EQ(asked_, "");
}

TEST_F(McpTest, VersionsAreAgreedOn) {
  const auto initialize = [&](const std::string& version) {
    return std::string(
        Ask(R"({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": ")" +
            version + R"("}})")
            .at("result")
            .at("protocolVersion")
            .as_string());
  };
  EXPECT_EQ(initialize("2024-11-05"), "2024-11-05");
  EXPECT_EQ(initialize("2025-06-18"), "2025-06-18");
  EXPECT_EQ(initialize("2026-07-28"), "2025-11-25");  // has no handshake
  EXPECT_EQ(initialize("x"), "2025-11-25");
  const std::string ping = R"({"jsonrpc": "2.0", "id": 1, "method": "ping"})";
  EXPECT_TRUE(Ask(ping, McpMessage::Headers{"2025-03-26", "", ""}).as_object().contains("result"));
  const json::value refused = Ask(ping, McpMessage::Headers{"1999-01-01", "", ""});
  EXPECT_EQ(CodeOf(refused), -32022);
  EXPECT_EQ(refused.at("error").at("data").at("requested"), "1999-01-01");
  EXPECT_EQ(CodeOf(Ask(ping, McpMessage::Headers{"2026-07-28", "ping", ""})), -32602);
}

TEST_F(McpTest, AStatelessRequestSaysItsVersion) {
  const std::string call = R"({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
      "name": "list_entities", )" +
                           kMeta + "}}";
  const McpMessage::Headers good{"2026-07-28", "tools/call", "list_entities"};
  const json::value answer = Ask(call, good);
  EXPECT_EQ(answer.at("result").at("resultType"), "complete");
  EXPECT_TRUE(answer_.stateless);
  for (const McpMessage::Headers& bad :
       {McpMessage::Headers{"2025-11-25", "tools/call", "list_entities"},
        McpMessage::Headers{"2026-07-28", "tools/list", "list_entities"},
        McpMessage::Headers{"2026-07-28", "tools/call", "get_memory"},
        McpMessage::Headers{"", "", ""}}) {
    EXPECT_EQ(CodeOf(Ask(call, bad)), -32020);
  }
  EXPECT_EQ(
      CodeOf(Ask(R"({"jsonrpc": "2.0", "id": 1, "method": "nothing", "params": {)" + kMeta + "}}")),
      -32601);
  EXPECT_TRUE(answer_.stateless);
  EXPECT_EQ(CodeOf(Ask(R"({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {
      "io.modelcontextprotocol/protocolVersion": "2030-01-01",
      "io.modelcontextprotocol/clientCapabilities": {}}}})")),
            -32022);
  EXPECT_EQ(CodeOf(Ask(R"({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": 7}})")),
            -32602);
}

TEST_F(McpTest, MessagesOfARefusalQuoteNothing) {
  for (const char* text : {"{\"secret\"", R"({"jsonrpc": "2.0", "id": 1, "method": "secret"})",
                           R"({"jsonrpc": "2.0", "id": {"secret": 1}, "method": "ping"})"}) {
    Ask(text);
    EXPECT_TRUE(answer_.error);
    EXPECT_THAT(answer_.text, Not(HasSubstr("secret")));
  }
  EXPECT_THAT(json::serialize(UseTool("get_memory", R"({"secret": 1})")), Not(HasSubstr("secret")));
  EXPECT_EQ(asked_, "");
}

}  // namespace
}  // namespace inferscale
