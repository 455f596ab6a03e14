// The memory routes and keys over toy models, without sockets.
#include "server/memory_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>

#include "app/toy_models.h"
#include "recorder.h"
#include "server/gateway.h"

namespace inferscale {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

struct Reply {
  unsigned status = 0;
  json::value body;
  std::string text;
};

class MemoryApiTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(dir_);
    AppOptions options;
    options.data_dir = dir_.string();
    options.arena_bytes = 16 << 20;
    app_ = OpenApp(options, ToyModels(log_)).value();
    keys_ = KeyStore::Open(clock_, (dir_ / "keys.db").string()).value();
    gatekeeper_ = std::make_unique<Gatekeeper>(*keys_, clock_, GatekeeperOptions{});
    gateway_ = std::make_unique<Gateway>(*app_, clock_, AskRequest{}, gatekeeper_.get());
    key_ = keys_->Create({"t1"})->key;
    other_ = keys_->Create({"t2"})->key;
  }
  void TearDown() override {
    gateway_.reset();
    app_.reset();
    std::filesystem::remove_all(dir_);
  }

  Reply Ask(const std::string& method, const std::string& target, const std::string& body = "",
            std::optional<std::string> key = std::nullopt) {
    HttpRequest request;
    request.method = method;
    request.path = target.substr(0, target.find('?'));
    if (request.path.size() < target.size()) request.query = target.substr(request.path.size() + 1);
    request.content_type = "application/json";
    request.authorization = "Token " + key.value_or(key_);
    request.body = body;
    Recorder recorder;
    gateway_->Handle(request, recorder);
    Reply reply{recorder.answer_.status, nullptr, recorder.answer_.body};
    if (recorder.answer_.content_type == "application/json") reply.body = json::parse(reply.text);
    return reply;
  }
  std::string Add(const std::string& text, const std::string& ids = R"("user_id": "ana")",
                  std::optional<std::string> key = std::nullopt) {
    const Reply reply =
        Ask("POST", "/memories", R"({"messages": ")" + text + R"(", )" + ids + "}", std::move(key));
    EXPECT_EQ(reply.status, 200U) << reply.text;
    return std::string(reply.body.at("results").at(0).at("id").as_string());
  }
  static std::vector<std::string> Texts(const Reply& reply) {
    std::vector<std::string> texts;
    for (const json::value& one : reply.body.at("results").as_array()) {
      texts.emplace_back(one.at("memory").as_string());
    }
    return texts;
  }

  SystemClock clock_;
  const std::filesystem::path dir_ = std::filesystem::temp_directory_path() /
                                     ("inferscale-memory-api-" + std::to_string(getpid()));
  std::shared_ptr<ToyLog> log_ = std::make_shared<ToyLog>();
  std::unique_ptr<App> app_;
  std::unique_ptr<KeyStore> keys_;
  std::unique_ptr<Gatekeeper> gatekeeper_;
  std::unique_ptr<Gateway> gateway_;
  std::string key_;
  std::string other_;
};

TEST_F(MemoryApiTest, ALifeOfAMemory) {
  const std::string id = Add("Ana likes green tea");
  EXPECT_EQ(Ask("POST", "/memories", R"({"messages": "Ana likes green tea.", "user_id": "ana"})")
                .body.at("results")
                .at(0)
                .at("event"),
            "NONE");  // says the same
  EXPECT_EQ(Ask("GET", "/memories/" + id).body.at("memory"), "Ana likes green tea");
  const Reply changed = Ask("PUT", "/v1/memories/" + id + "/",
                            R"({"text": "Ana likes black tea", "metadata": {"topic": "tea"}})");
  EXPECT_EQ(changed.status, 200U) << changed.text;
  EXPECT_EQ(changed.body.at("metadata").at("topic"), "tea");
  EXPECT_EQ(changed.body.at("version"), 2);
  EXPECT_THAT(Texts(Ask("POST", "/search", R"({"query": "tea", "user_id": "ana"})")),
              testing::ElementsAre("Ana likes black tea"));
  ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  const Reply gone = Ask("DELETE", "/memories/" + id);
  EXPECT_EQ(gone.status, 200U);
  EXPECT_EQ(gone.body.at("message"), "Memory deleted successfully");
  EXPECT_EQ(gone.body.at("erased").at("text"), 1);
  EXPECT_EQ(gone.body.at("erased").at("kv_records"), 1);
  EXPECT_EQ(gone.body.at("erased").at("kv_pending"), false);
  EXPECT_EQ(Ask("DELETE", "/memories/" + id).status, 404U);
  EXPECT_EQ(Ask("GET", "/memories/" + id).status, 404U);
  const Reply history = Ask("GET", "/v1/memories/" + id + "/history/");
  ASSERT_EQ(history.body.as_array().size(), 3U);
  EXPECT_EQ(history.body.at(2).at("event"), "DELETE");
  EXPECT_THAT(history.text, Not(HasSubstr("tea")));
}

TEST_F(MemoryApiTest, ScopesFiltersAndPages) {
  for (int i = 0; i < 5; ++i) Add("fact number " + std::to_string(i));
  Add("of bo", R"("user_id": "bo", "agent_id": "bot", "metadata": {"n": 7})");
  Add("of the bot alone", R"("agent_id": "bot")");
  Add("of a run alone", R"("run_id": "r1")");
  EXPECT_THAT(Texts(Ask("GET", "/memories?user_id=bo")), testing::ElementsAre("of bo"));
  EXPECT_EQ(Texts(Ask("GET", "/memories")).size(), 8U);
  EXPECT_EQ(Texts(Ask("GET", "/memories?top_k=3")).size(), 3U);
  EXPECT_EQ(Ask("GET", "/memories?top_k=x").status, 400U);
  EXPECT_THAT(Texts(Ask("GET", "/memories?agent_id=bot")),
              UnorderedElementsAre("of bo", "of the bot alone"));
  // A search by agent finds what any user said to it, and what belongs to no user.
  EXPECT_THAT(Texts(Ask("POST", "/search", R"({"query": "of", "filters": {"agent_id": "bot"}})")),
              UnorderedElementsAre("of bo", "of the bot alone"));
  EXPECT_THAT(Texts(Ask("POST", "/search", R"({"query": "of", "filters": {"n": {"gte": 7}}})")),
              testing::ElementsAre("of bo"));
  EXPECT_THAT(Texts(Ask("POST", "/v3/memories/search/",
                        R"({"query": "fact", "top_k": 2, "filters": {"OR": [
                            {"user_id": "ana"}, {"user_id": "nobody"}]}})")),
              testing::SizeIs(2));
  const Reply page =
      Ask("POST", "/v3/memories/?page=2&page_size=3", R"({"filters": {"user_id": "ana"}})");
  EXPECT_EQ(page.body.at("count"), 5);
  EXPECT_THAT(Texts(page), testing::ElementsAre("fact number 1", "fact number 0"));
  EXPECT_TRUE(page.body.at("next").is_null());
  EXPECT_EQ(page.body.at("previous"), "/v3/memories/?page=1&page_size=3");
}

TEST_F(MemoryApiTest, EntitiesAndTheirEnd) {
  Add("one");
  Add("two", R"("user_id": "bo smith", "agent_id": "bot", "run_id": "r")");
  const Reply entities = Ask("GET", "/v1/entities/");
  EXPECT_EQ(entities.body.at("count"), 4);
  EXPECT_EQ(Ask("GET", "/entities").body.as_array().size(), 4U);
  EXPECT_EQ(Ask("DELETE", "/v2/entities/user/bo%20smith/").body.at("erased").at("text"), 1);
  EXPECT_EQ(Ask("DELETE", "/entities/user/bo%20smith").body.at("erased").at("text"), 0);
  EXPECT_EQ(Ask("DELETE", "/entities/app/x").status, 404U);
  EXPECT_EQ(Ask("GET", "/v1/entities/").body.at("count"), 1);
  EXPECT_EQ(Ask("POST", "/reset").body.at("erased").at("text"), 1);
  EXPECT_EQ(Ask("GET", "/v1/entities/").body.at("count"), 0);
}

TEST_F(MemoryApiTest, DeletingNeedsAName) {
  Add("one");
  for (const char* query : {"", "?", "?user_id=", "?user_id=*", "?x=1", "?user_id=ana&app_id=x"}) {
    EXPECT_EQ(Ask("DELETE", std::string("/memories") + query).status, 400U) << query;
    EXPECT_EQ(Ask("DELETE", std::string("/v1/memories/") + query).status, 400U) << query;
  }
  EXPECT_EQ(Texts(Ask("GET", "/memories")).size(), 1U);
  EXPECT_EQ(Ask("DELETE", "/v1/memories/?user_id=ana").body.at("erased").at("text"), 1);
}

TEST_F(MemoryApiTest, ABatchIsDoneWholeOrNot) {
  const std::string a = Add("one");
  const std::string b = Add("two");
  const auto batch = [](const std::string& first, const std::string& second) {
    return R"({"memories": [{"memory_id": ")" + first +
           R"(", "text": "changed a"}, {"memory_id": ")" + second + R"(", "text": "changed b"}]})";
  };
  EXPECT_EQ(Ask("PUT", "/v1/batch/", batch(a, "none")).status, 404U);
  EXPECT_EQ(Ask("DELETE", "/v1/batch/", batch(a, "none")).status, 404U);
  EXPECT_EQ(Ask("GET", "/memories/" + a).body.at("memory"), "one");
  EXPECT_EQ(Ask("PUT", "/v1/batch/", batch(a, b)).status, 200U);
  EXPECT_EQ(Ask("GET", "/memories/" + b).body.at("memory"), "changed b");
  EXPECT_EQ(Ask("DELETE", "/v1/batch/", batch(a, b)).body.at("erased").at("text"), 2);
}

TEST_F(MemoryApiTest, AnotherTenantsMemoriesAreNotThere) {
  const std::string id = Add("a secret of t1");
  const std::string one = R"({"memories": [{"memory_id": ")" + id + R"(", "text": "x"}]})";
  const std::string everything = R"({"query": "secret", "filters": {"OR": [{"user_id": "*"},
      {"user_id": "ana"}, {"tenant": "t1"}]}, "tenant": "t1"})";
  EXPECT_EQ(Ask("GET", "/memories/" + id, "", other_).status, 404U);
  EXPECT_EQ(Ask("GET", "/memories/" + id + "/history", "", other_).status, 404U);
  EXPECT_EQ(Ask("PUT", "/memories/" + id, R"({"text": "x"})", other_).status, 404U);
  EXPECT_EQ(Ask("DELETE", "/memories/" + id, "", other_).status, 404U);
  EXPECT_EQ(Ask("PUT", "/v1/batch", one, other_).status, 404U);
  EXPECT_EQ(Ask("DELETE", "/v1/batch", one, other_).status, 404U);
  EXPECT_EQ(Ask("DELETE", "/entities/user/ana", "", other_).body.at("erased").at("text"), 0);
  EXPECT_EQ(Ask("DELETE", "/memories?user_id=ana", "", other_).body.at("erased").at("text"), 0);
  EXPECT_EQ(Ask("POST", "/reset", "", other_).body.at("erased").at("text"), 0);
  for (const Reply& reply :
       {Ask("POST", "/search", everything, other_), Ask("POST", "/v3/memories", everything, other_),
        Ask("GET", "/memories", "", other_), Ask("GET", "/memories?user_id=ana", "", other_),
        Ask("GET", "/entities", "", other_)}) {
    EXPECT_EQ(reply.status, 200U);
    EXPECT_THAT(reply.text, Not(HasSubstr("secret")));
    EXPECT_THAT(reply.text, Not(HasSubstr("ana")));
  }
  // Nor does a question of the other one read it.
  const Reply answer =
      Ask("POST", "/v1/chat/completions",
          R"({"messages": [{"role": "user", "content": "secret"}], "user": "ana"})", other_);
  EXPECT_TRUE(answer.body.at("inferscale").at("facts").as_array().empty());
  EXPECT_EQ(Ask("GET", "/memories/" + id).body.at("memory"), "a secret of t1");
}

TEST_F(MemoryApiTest, EveryRouteAsksForAKey) {
  const std::string reader = keys_->Create({"t1", Access::kRead})->key;
  size_t writing = 0;
  for (const Route& route : gateway_->routes()) {
    if (route.access == Access::kOpen) {
      EXPECT_THAT(route.path,
                  testing::AnyOf("/", "/favicon.ico", "/openapi.json",
                                 testing::StartsWith("/page/"), testing::StartsWith("/health")));
      continue;
    }
    std::string path = route.path;
    while (path.find('{') != std::string::npos) {
      const size_t open = path.find('{');
      path.erase(open + 1, path.find('}') - open);
      path[open] = 'x';
    }
    for (const char* wrong : {"", "wrong", "isk-000000000000-00"}) {
      EXPECT_EQ(Ask(route.method, path, "{}", wrong).status, 401U) << route.method << " " << path;
    }
    if (route.access > Access::kRead) {
      ++writing;
      EXPECT_EQ(Ask(route.method, path, "{}", reader).status, 403U) << route.method << " " << path;
    }
    if (route.access == Access::kAdmin) {
      EXPECT_EQ(Ask(route.method, path, "{}").status, 403U) << route.method << " " << path;
    }
  }
  EXPECT_GT(writing, 10U);
  // A question changes nothing, unless its turn is to be remembered.
  const std::string question = R"({"messages": [{"role": "user", "content": "q"}], "user": "a")";
  EXPECT_EQ(Ask("POST", "/v1/chat/completions", question + "}", reader).status, 200U);
  EXPECT_EQ(
      Ask("POST", "/v1/chat/completions", question + R"(, "memory": {"remember": true}})", reader)
          .status,
      403U);
}

TEST_F(MemoryApiTest, BadInputIsRefusedOnEveryRoute) {
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += R"({"filters":)";
  const std::string admin = keys_->Create({"t1", Access::kAdmin})->key;
  for (const Route& route : gateway_->routes()) {
    if (route.method != "POST" && route.method != "PUT") continue;
    if (route.path == "/reset" || route.what.starts_with("Not offered")) continue;
    std::string path = route.path;
    if (path.find('{') != std::string::npos) path = path.substr(0, path.find('{')) + "%00x";
    if (route.path.ends_with("/rotate")) continue;  // takes no body
    for (const std::string& body :
         {std::string(), std::string("{"), std::string("[]"), std::string("{\"query\": \"\xff\"}"),
          deep, std::string("{\"a\": 01}"), std::string("null"), std::string("\0{}", 3)}) {
      const Reply reply = Ask(route.method, path, body, admin);
      EXPECT_EQ(reply.status, 400U) << route.method << " " << path << " " << body.substr(0, 20);
      if (path == "/mcp") continue;  // its errors are JSON-RPC's
      EXPECT_TRUE(reply.body.at("detail").is_string());
    }
    HttpRequest request;
    request.method = route.method;
    request.path = path;
    request.api_key = admin;
    request.content_type = "text/plain";
    Recorder recorder;
    gateway_->Handle(request, recorder);
    EXPECT_EQ(recorder.answer_.status, 415U) << path;
  }
  EXPECT_EQ(Ask("GET", "/memories?user_id=%ff").status, 400U);
  EXPECT_EQ(Ask("GET", "/memories?user_id=a&user_id=b").status, 400U);
  EXPECT_EQ(Ask("GET", "/memories/../../etc/passwd").status, 404U);
  EXPECT_EQ(Ask("GET", "/memories/..%2f..%2fetc%2fpasswd").status, 404U);
}

TEST_F(MemoryApiTest, AdministratorsMakeKeys) {
  const std::string admin = keys_->Create({"t1", Access::kAdmin})->key;
  const Reply made =
      Ask("POST", "/v1/keys", R"({"tenant": "t3", "access": "read", "name": "n"})", admin);
  ASSERT_EQ(made.status, 200U) << made.text;
  const std::string key(made.body.at("key").as_string());
  const std::string id(made.body.at("id").as_string());
  EXPECT_EQ(Ask("GET", "/v1/ping/", "", key).body.at("tenant"), "t3");
  const Reply list = Ask("GET", "/v1/keys", "", admin);
  EXPECT_EQ(list.body.at("keys").as_array().size(), 4U);
  EXPECT_THAT(list.text, Not(HasSubstr(key.substr(17))));
  const Reply rotated = Ask("POST", "/v1/keys/" + id + "/rotate", "", admin);
  EXPECT_EQ(Ask("GET", "/v1/ping/", "", key).status, 401U);
  const std::string next(rotated.body.at("key").as_string());
  EXPECT_EQ(Ask("GET", "/v1/ping/", "", next).status, 200U);
  EXPECT_EQ(Ask("DELETE", "/v1/keys/" + id, "", admin).status, 200U);
  EXPECT_EQ(Ask("GET", "/v1/ping/", "", next).status, 401U);
  EXPECT_EQ(Ask("DELETE", "/v1/keys/none", "", admin).status, 404U);
  EXPECT_EQ(Ask("POST", "/v1/keys", R"({"access": "all"})", admin).status, 400U);
}

TEST_F(MemoryApiTest, NumbersAreForAdministrators) {
  const std::string admin = keys_->Create({"t1", Access::kAdmin})->key;
  Add("one");
  Ask("GET", "/memories/none");
  Ask("GET", "/memories/none", "", "wrong");
  EXPECT_EQ(Ask("GET", "/metrics").status, 403U);
  const Reply numbers = Ask("GET", "/metrics", "", admin);
  EXPECT_EQ(numbers.status, 200U);
  EXPECT_THAT(numbers.text, HasSubstr("\ninferscale_facts 1\n"));
  EXPECT_THAT(numbers.text, HasSubstr(R"({method="GET",route="/memories/{id}",status="404"} 1)"));
  EXPECT_THAT(numbers.text, HasSubstr(R"({method="GET",route="/memories/{id}",status="401"} 1)"));
  EXPECT_THAT(numbers.text, HasSubstr(R"(inferscale_tenant_requests_total{tenant="t1"} )"));
  EXPECT_THAT(numbers.text, Not(HasSubstr("none")));
}

TEST_F(MemoryApiTest, WhatIsNotOfferedSaysSo) {
  EXPECT_EQ(Ask("POST", "/v1/exports/", "{}").status, 501U);
}

TEST_F(MemoryApiTest, InferKeepsWhatTheModelSays) {
  const std::string id = Add("Ana lives in Rome");
  log_->answers = {R"({"facts": [{"text": "Ana lives in Lisbon", "replaces": 1},
                                 {"text": "Ana has a dog", "replaces": null}]})",
                   R"({"facts": [{"text": "ana has a dog", "replaces": null}]})", "no JSON"};
  const std::string body = R"({"messages": "Ana moved", "user_id": "ana", "infer": true})";
  const Reply reply = Ask("POST", "/memories", body);
  ASSERT_EQ(reply.status, 200U) << reply.text;
  const json::array& results = reply.body.at("results").as_array();
  ASSERT_EQ(results.size(), 2U) << reply.text;
  EXPECT_EQ(results[0].at("event"), "UPDATE");
  EXPECT_EQ(results[0].at("id"), json::string(id));
  EXPECT_EQ(results[0].at("memory"), "Ana lives in Lisbon");
  EXPECT_EQ(results[0].at("previous_memory"), "Ana lives in Rome");
  EXPECT_EQ(results[1].at("event"), "ADD");
  EXPECT_EQ(Ask("POST", "/memories", body).body.at("results").at(0).at("event"), "NONE");
  EXPECT_EQ(Ask("POST", "/memories", body).status, 503U);  // the model's fault, and it may pass
}

}  // namespace
}  // namespace inferscale
