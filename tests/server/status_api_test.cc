// What is watched, by whom; and the page, which is for everybody.
#include "server/status_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>

#include "app/toy_models.h"
#include "recorder.h"
#include "server/gateway.h"
#include "server/page.h"

namespace inferscale {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class StatusApiTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(dir_);
    AppOptions options;
    options.data_dir = dir_.string();
    options.arena_bytes = 16 << 20;
    options.disk_bytes = 1 << 20;
    app_ = OpenApp(options, ToyModels(std::make_shared<ToyLog>())).value();
    keys_ = KeyStore::Open(clock_, (dir_ / "keys.db").string()).value();
    gatekeeper_ = std::make_unique<Gatekeeper>(*keys_, clock_, GatekeeperOptions{});
    AskRequest defaults;
    defaults.scope.tenant = "default";
    defaults.compose.plain_last = 0;
    gateway_ = std::make_unique<Gateway>(*app_, clock_, defaults, gatekeeper_.get());
  }
  void TearDown() override {
    gateway_.reset();
    app_.reset();
    std::filesystem::remove_all(dir_);
  }

  HttpAnswer Ask(const std::string& method, const std::string& target, const std::string& key = "",
                 const std::string& body = "") {
    HttpRequest request;
    request.method = method;
    request.path = target.substr(0, target.find('?'));
    if (request.path.size() < target.size()) request.query = target.substr(request.path.size() + 1);
    request.host = "127.0.0.1:8080";
    request.content_type = "application/json";
    request.api_key = key;
    request.if_none_match = if_none_match_;
    request.body = body;
    Recorder recorder;
    gateway_->Handle(request, recorder);
    return recorder.answer_;
  }
  json::value Json(const std::string& target, const std::string& key = "") {
    const HttpAnswer answer = Ask("GET", target, key);
    EXPECT_EQ(answer.status, 200U) << answer.body;
    return json::parse(answer.body);
  }
  // "POST /memories 200" of each request in the log, newest first.
  std::vector<std::string> Logged(const std::string& key = "", const std::string& query = "") {
    std::vector<std::string> out;
    const json::value answer = Json("/v1/requests" + query, key);
    for (const json::value& one : answer.at("requests").as_array()) {
      const auto text = [&](const char* name) {
        return one.at(name).is_null() ? std::string("-") : std::string(one.at(name).as_string());
      };
      out.push_back(text("method") + " " + text("route") + " " +
                    std::to_string(one.at("status").to_number<int>()));
    }
    return out;
  }
  void Remember(const std::string& text, const std::string& key = "") {
    const std::string body = R"({"user_id": "ana", "messages": ")" + text + "\"}";
    ASSERT_EQ(Ask("POST", "/memories", key, body).status, 200U);
  }
  std::string MakeKey(const std::string& tenant, Access access) {
    return keys_->Create({tenant, access})->key;
  }

  SystemClock clock_;
  const std::filesystem::path dir_ = std::filesystem::temp_directory_path() /
                                     ("inferscale-status-api-" + std::to_string(getpid()));
  std::unique_ptr<App> app_;
  std::unique_ptr<KeyStore> keys_;
  std::unique_ptr<Gatekeeper> gatekeeper_;
  std::unique_ptr<Gateway> gateway_;
  std::string if_none_match_;
};

TEST_F(StatusApiTest, WhoeverNeedsNoKeySeesTheMachine) {
  Remember("Ana lives in Lisbon");
  json::value stats = Json("/v1/stats");
  EXPECT_EQ(stats.at("model").at("id"), "toy");
  EXPECT_TRUE(stats.at("model").at("quality").is_null());  // not measured
  EXPECT_EQ(stats.at("tenant").at("name"), "default");
  EXPECT_EQ(stats.at("tenant").at("facts"), 1);
  EXPECT_EQ(stats.at("tenant").at("users"), 1);
  EXPECT_EQ(stats.at("machine").at("facts"), 1);
  EXPECT_EQ(stats.at("machine").at("episodes_pending"), 1);
  ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  stats = Json("/v1/stats");
  EXPECT_EQ(stats.at("machine").at("episodes_pending"), 0);
  const json::array& tiers = stats.at("machine").at("tiers").as_array();
  ASSERT_EQ(tiers.size(), 2U);
  EXPECT_EQ(tiers[0].at("tier"), "memory");
  EXPECT_EQ(tiers[0].at("budget"), 16 << 20);
  EXPECT_EQ(tiers[1].at("tier"), "disk");
  EXPECT_EQ(tiers[1].at("budget"), 1 << 20);
  EXPECT_GT(tiers[1].at("bytes").to_number<int>(), 0);
  EXPECT_GT(stats.at("machine").at("lookups").at("records").to_number<int>(), 0);
}

TEST_F(StatusApiTest, AKeySeesItsTenantAndAnAdministratorAll) {
  const std::string admin = MakeKey("t1", Access::kAdmin);
  const std::string writer = MakeKey("t1", Access::kWrite);
  const std::string other = MakeKey("t2", Access::kRead);
  Remember("Ana lives in Lisbon", writer);
  Ask("POST", "/search", other, R"({"query": "Lisbon", "user_id": "ana"})");
  Ask("GET", "/v1/stats");  // without a key
  EXPECT_THAT(Logged(writer), ElementsAre("POST /memories 200"));
  EXPECT_THAT(Logged(other), ElementsAre("POST /search 200"));
  EXPECT_THAT(Logged(admin),
              ElementsAre("GET /v1/stats 401", "POST /search 200", "POST /memories 200"));
  EXPECT_EQ(Json("/v1/requests", other).at("newest"), 3);
  for (const std::string& key : {writer, other}) {
    EXPECT_EQ(Json("/v1/stats", key).as_object().if_contains("machine"), nullptr);
  }
  EXPECT_EQ(Json("/v1/stats", other).at("tenant").at("facts"), 0);
  EXPECT_EQ(Json("/v1/stats", writer).at("tenant").at("facts"), 1);
  EXPECT_EQ(Json("/v1/stats", admin).at("machine").at("facts"), 1);
}

TEST_F(StatusApiTest, AnswersAreLoggedWithoutTheirText) {
  Remember("Ana lives in Lisbon");
  ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  Remember("Ana has a secret");  // not encoded
  for (const char* mode : {"kv", "text"}) {
    const std::string body =
        R"({"messages": [{"role": "user", "content": "my question"}], "memory": {"user": "ana", "mode": ")" +
        std::string(mode) + "\"}}";
    ASSERT_EQ(Ask("POST", "/v1/chat/completions", "", body).status, 200U);
  }
  const HttpAnswer answer = Ask("GET", "/v1/requests?limit=2");
  EXPECT_THAT(answer.body, Not(HasSubstr("Ana")));
  EXPECT_THAT(answer.body, Not(HasSubstr("question")));
  const json::value requests = json::parse(answer.body).at("requests");
  ASSERT_EQ(requests.as_array().size(), 2U);
  const json::value& text = requests.at(0).at("answer");
  EXPECT_EQ(text.at("mode"), "text");
  EXPECT_TRUE(text.at("injected").as_array().empty());
  EXPECT_EQ(text.at("prefilled").as_array().size(), 2U);
  const json::value& kv = requests.at(1).at("answer");
  EXPECT_EQ(kv.at("mode"), "kv");
  EXPECT_EQ(kv.at("injected").as_array().size(), 1U);
  EXPECT_EQ(kv.at("prefilled").as_array().size(), 1U);
  EXPECT_GT(kv.at("injected_tokens").to_number<int>(), 0);
  EXPECT_GT(kv.at("first_token_ms").to_number<double>(), 0);
  EXPECT_EQ(requests.at(1).at("route"), "/v1/chat/completions");
  EXPECT_TRUE(requests.at(1).at("key_id").is_null());
}

TEST_F(StatusApiTest, WatchingIsNotLoggedButFailuresAre) {
  for (const char* path :
       {"/", "/health", "/health/live", "/v1/ping", "/v1/stats", "/v1/requests"}) {
    EXPECT_EQ(Ask("GET", path).status, 200U) << path;
  }
  EXPECT_TRUE(Logged().empty());
  Ask("GET", "/nothing/here");
  Ask("GET", "/v1/requests?limit=0");
  Ask("GET", "/memories/none");
  EXPECT_THAT(Logged(), ElementsAre("GET /memories/{id} 404", "GET /v1/requests 400", "- - 404"));
  EXPECT_THAT(Logged("", "?limit=1"), ElementsAre("GET /memories/{id} 404"));
  EXPECT_THAT(Logged("", "?after=2"), ElementsAre("GET /memories/{id} 404"));
  for (const char* bad : {"?limit=x", "?limit=1001", "?after=-1"}) {
    EXPECT_EQ(Ask("GET", std::string("/v1/requests") + bad).status, 400U) << bad;
  }
}

std::string Header(const HttpAnswer& answer, const std::string& name) {
  for (const auto& [key, value] : answer.headers) {
    if (key == name) return value;
  }
  return "";
}

TEST_F(StatusApiTest, ThePageIsForEverybodyAndRunsOnlyItsOwn) {
  MakeKey("t1", Access::kAdmin);  // keys are asked for, but not for these
  ASSERT_FALSE(PageFiles().empty());
  for (const PageFile& file : PageFiles()) {
    const bool first = file.name == "index.html";
    const HttpAnswer answer = Ask("GET", first ? "/" : "/page/" + std::string(file.name));
    EXPECT_EQ(answer.status, 200U) << file.name;
    EXPECT_EQ(answer.body, file.bytes);
    EXPECT_THAT(answer.content_type, Not(HasSubstr("octet-stream"))) << file.name;
    EXPECT_THAT(Header(answer, "Content-Security-Policy"), HasSubstr("default-src 'self';"));
    EXPECT_THAT(Header(answer, "Content-Security-Policy"), HasSubstr("frame-ancestors 'none'"));
    EXPECT_THAT(Header(answer, "Content-Security-Policy"), Not(HasSubstr("unsafe")));
    EXPECT_EQ(Header(answer, "X-Frame-Options"), "DENY");
  }
  EXPECT_EQ(Ask("GET", "/").content_type, "text/html; charset=utf-8");
  EXPECT_EQ(Ask("GET", "/page/app.js").content_type, "text/javascript; charset=utf-8");
  for (const char* path : {"/page", "/page/none", "/page/index.html", "/page/..%2fapp.js"}) {
    EXPECT_EQ(Ask("GET", path).status, 404U) << path;
  }
  EXPECT_EQ(Ask("POST", "/").status, 405U);
}

TEST_F(StatusApiTest, ThePageIsSentOnceUntilItChanges) {
  const std::string tag = Header(Ask("GET", "/"), "ETag");
  EXPECT_EQ(tag.size(), 34U);
  for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag}) {
    if_none_match_ = known;
    const HttpAnswer answer = Ask("GET", "/");
    EXPECT_EQ(answer.status, 304U);
    EXPECT_EQ(answer.body, "");
    EXPECT_EQ(Header(answer, "ETag"), tag);
    EXPECT_EQ(Ask("GET", "/page/app.js").status, 200U);
  }
  if_none_match_ = "\"other\"";
  EXPECT_EQ(Ask("GET", "/").status, 200U);
}

}  // namespace
}  // namespace inferscale
