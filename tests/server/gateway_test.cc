// The gateway over toy models, asked through sockets by bytes.
#include "server/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>

#include "app/toy_models.h"
#include "server/errors.h"
#include "server/http_world.h"

namespace inferscale {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Post(const std::string& body) { return HttpPost("/v1/chat/completions", body); }
std::string Get(const std::string& path) { return HttpGet(path); }

class GatewayTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ =
        std::filesystem::temp_directory_path() / ("inferscale-gateway-" + std::to_string(getpid()));
    std::filesystem::remove_all(dir_);
    AppOptions options;
    options.data_dir = dir_.string();
    options.arena_bytes = 16 << 20;
    options.audit = true;
    app_ = OpenApp(options, ToyModels(log_)).value();
    AskRequest defaults;
    defaults.scope.tenant = "t1";
    gateway_ = std::make_unique<Gateway>(*app_, clock_, defaults, nullptr, /*audit=*/2);
    server_.emplace([this](const HttpRequest& request,
                           HttpResponder& responder) { gateway_->Handle(request, responder); },
                    HttpServerOptions{});
    Fact fact;
    fact.scope = {"t1", "ana", "", ""};
    fact.text = "Ana lives in Lisbon";
    ASSERT_TRUE(app_->Add(std::span(&fact, 1)));
    ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  }
  void TearDown() override {
    server_.reset();
    gateway_.reset();
    app_.reset();
    std::filesystem::remove_all(dir_);
  }
  std::string Ask(const std::string& request) { return server_->Ask(request); }
  boost::json::value Json(const std::string& request) {
    const std::string answer = Ask(request);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
    return boost::json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  }

  SystemClock clock_;
  std::filesystem::path dir_;
  std::shared_ptr<ToyLog> log_ = std::make_shared<ToyLog>();
  std::unique_ptr<App> app_;
  std::unique_ptr<Gateway> gateway_;
  std::optional<RunningServer> server_;
};

const std::string kQuestion = R"("messages": [{"role": "user", "content": "Where does Ana live"}])";

TEST_F(GatewayTest, AnswersFromMemory) {
  const auto answer = Json(Post("{" + kQuestion + R"(, "memory": {"user": "ana", "k": 5}})"));
  EXPECT_EQ(answer.at("object"), "chat.completion");
  EXPECT_EQ(answer.at("model"), "toy");
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(answer.at("inferscale").at("facts").as_array().size(), 1U);
  EXPECT_GT(answer.at("inferscale").at("injected_tokens").to_number<int>(), 0);
  // Another user, and nobody, have no such memory.
  for (const char* user : {R"(, "user": "bo")", ""}) {
    const auto other = Json(Post("{" + kQuestion + user + "}"));
    EXPECT_TRUE(other.at("inferscale").at("facts").as_array().empty());
  }
}

TEST_F(GatewayTest, StreamsTheSameAnswer) {
  const std::string body = "{" + kQuestion + R"(, "user": "ana")";
  const std::string text(
      Json(Post(body + "}")).at("choices").at(0).at("message").at("content").as_string());
  const std::string stream =
      Ask(Post(body + R"(, "stream": true, "stream_options": {"include_usage": true}})"));
  EXPECT_THAT(stream, HasSubstr("text/event-stream"));
  EXPECT_THAT(stream, HasSubstr(text));
  EXPECT_THAT(stream, HasSubstr(R"("finish_reason":"stop")"));
  EXPECT_THAT(stream, HasSubstr(R"("prompt_tokens_details")"));
  EXPECT_THAT(stream, HasSubstr("data: [DONE]\n\n"));
}

TEST_F(GatewayTest, GivesSeveralAnswers) {
  const std::string body = "{" + kQuestion + R"(, "user": "ana", "n": 3, "seed": 7)";
  log_->answers = {"one", "two", "three"};
  const auto warm = Json(Post(body + R"(, "temperature": 0.5})"));
  for (const size_t i : {0U, 1U, 2U}) EXPECT_EQ(warm.at("choices").at(i).at("index"), i);
  EXPECT_EQ(warm.at("choices").at(2).at("message").at("content"), "three");
  EXPECT_EQ(log_->seeds, (std::vector<uint64_t>{7, 8, 9}));
  EXPECT_NE(log_->sessions[0], 0U);  // so that the prompt is read once
  EXPECT_EQ(log_->sessions[0], log_->sessions[2]);
  const auto& usage = warm.at("usage");
  EXPECT_EQ(usage.at("completion_tokens"), 11);
  const auto cold = Json(Post(body + "}"));
  EXPECT_EQ(log_->seeds.size(), 4U);  // all alike: computed once
  EXPECT_EQ(cold.at("choices").as_array().size(), 3U);
  EXPECT_EQ(cold.at("choices").at(0).at("message"), cold.at("choices").at(2).at("message"));
  EXPECT_EQ(cold.at("usage").at("prompt_tokens"), usage.at("prompt_tokens"));
  EXPECT_EQ(cold.at("usage").at("prompt_tokens_details"), usage.at("prompt_tokens_details"));
  log_->answers = {"one", "two", "three"};
  const std::string stream = Ask(Post(body + R"(, "temperature": 0.5, "stream": true})"));
  EXPECT_THAT(stream, HasSubstr(R"({"index":2,"delta":{"role":"assistant")"));
  EXPECT_THAT(stream, HasSubstr(R"({"index":1,"delta":{"content":"two"})"));
  EXPECT_THAT(stream,
              HasSubstr(R"({"index":2,"delta":{},"logprobs":null,"finish_reason":"stop"})"));
  EXPECT_THAT(Ask(Post(body + R"(, "n": 9})")), StartsWith("HTTP/1.1 400"));
}

TEST_F(GatewayTest, SaysLogprobs) {
  log_->answers = {"hi"};
  const auto answer = Json(Post("{" + kQuestion + R"(, "logprobs": true, "top_logprobs": 2})"));
  const auto& content = answer.at("choices").at(0).at("logprobs").at("content");
  ASSERT_EQ(content.as_array().size(), 2U);
  EXPECT_EQ(content.at(1).at("token"), "i");
  EXPECT_EQ(content.at(1).at("top_logprobs").at(1).at("token"), "~");
  log_->answers = {"hi"};
  const std::string stream = Ask(Post("{" + kQuestion + R"(, "logprobs": true, "stream": true})"));
  EXPECT_THAT(stream, HasSubstr(R"("delta":{"content":"hi"},"logprobs":{"content":[{"token":"h")"));
  EXPECT_TRUE(Json(Post("{" + kQuestion + "}")).at("choices").at(0).at("logprobs").is_null());
}

TEST_F(GatewayTest, EarlierTurnsAreRead) {
  const auto prompt = [&](const std::string& messages) {
    Json(Post(R"({"messages": [)" + messages + "]}"));
    return std::string(log_->last_prompt.begin(), log_->last_prompt.end());
  };
  const std::string text = prompt(
      R"({"role": "system", "content": "SYS"}, {"role": "user", "content": "ONE"},
         {"role": "assistant", "content": "TWO"}, {"role": "user", "content": "THREE"})");
  EXPECT_THAT(text, HasSubstr("SYS\n\nONE"));
  EXPECT_LT(text.find("ONE"), text.find("TWO"));
  EXPECT_LT(text.find("TWO"), text.find("THREE"));
}

TEST_F(GatewayTest, ADialogueGoesOnWhereItWas) {
  const std::string first =
      R"({"user": "ana", "messages": [{"role": "user", "content": "Where does Ana live"})";
  const auto answer = Json(Post(first + "]}"));
  const std::vector<Token> held = log_->last_prompt;
  const std::string said(answer.at("choices").at(0).at("message").at("content").as_string());
  const auto next = Json(Post(first + R"(, {"role": "assistant", "content": ")" + said +
                              R"("}, {"role": "user", "content": "Since when"}]})"));
  EXPECT_TRUE(next.at("inferscale").at("facts").as_array().empty());
  ASSERT_GT(log_->last_prompt.size(), held.size());
  EXPECT_TRUE(std::equal(held.begin(), held.end(), log_->last_prompt.begin()));
}

TEST_F(GatewayTest, WhatIsTooLongIsTheClientsFault) {
  const std::string words(5000, 'w');  // a token each; the context has 4096
  EXPECT_THAT(Ask(Post(R"({"messages": [{"role": "user", "content": ")" + words + R"("}]})")),
              StartsWith("HTTP/1.1 400"));
}

TEST_F(GatewayTest, RemembersWhenAsked) {
  Json(Post("{" + kQuestion + R"(, "memory": {"user": "cy", "remember": true}})"));
  const auto found = app_->Search({"t1", "cy", "", ""}, "Where does Ana live", 5, nullptr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->size(), 2U);  // the question and the answer
}

TEST_F(GatewayTest, ErrorsAreOpenAis) {
  EXPECT_THAT(Ask(Post("{")), HasSubstr(R"("type":"invalid_request_error")"));
  EXPECT_THAT(Ask(Post("{" + kQuestion + R"(, "model": "other"})")), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(Post("{" + kQuestion + R"(, "model": "inferscale"})")),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask(Post("{")), HasSubstr(R"("detail":"the body is not JSON)"));  // as Mem0's
  EXPECT_THAT(Ask(Get("/v1/chat/completions")),
              testing::AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("\r\nAllow: POST\r\n")));
  EXPECT_THAT(Ask(Get("/nothing")), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
                  "Content-Length: 2\r\nConnection: close\r\n\r\n{}"),
              StartsWith("HTTP/1.1 415"));
  EXPECT_EQ(Json(Get("/v1/models")).at("data").at(0).at("id"), "toy");
  for (const char* path : {"/health", "/health/", "/health/live", "/health/ready"}) {
    EXPECT_EQ(Json(Get(path)).at("status"), "ok");
  }
}

TEST_F(GatewayTest, ThePageIsNotSentTwice) {
  EXPECT_THAT(Ask(Get("/favicon.ico")), HasSubstr("image/svg+xml"));
  const std::string page = Ask(Get("/"));
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(page, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  const size_t tag = page.find("ETag: ") + 6;
  const std::string again =
      Ask("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIf-None-Match: " +
          page.substr(tag, page.find('\r', tag) - tag) + "\r\n\r\n");
  EXPECT_THAT(again, StartsWith("HTTP/1.1 304"));
  EXPECT_THAT(again, testing::EndsWith("\r\n\r\n"));
  EXPECT_THAT(again, testing::Not(HasSubstr("Content-Length")));
}

TEST_F(GatewayTest, RequestsAreFoundAgain) {
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const auto named = [&](std::string request, const std::string& id) {
    const std::string headers = "X-Request-ID: " + id + "\r\ntraceparent: " + trace + "\r\n";
    return request.insert(request.find("Host:"), headers);
  };
  EXPECT_THAT(Ask(named(Post("{" + kQuestion + R"(, "user": "ana"})"), "chat-7")),
              HasSubstr("\r\nX-Request-ID: chat-7\r\n"));
  EXPECT_EQ(std::exchange(log_->last_trace, ""), trace);
  EXPECT_EQ(Json(Get("/v1/audit")).at("answers").at(0).at("request"), "chat-7");
  Ask(named(HttpPost("/v1/completions", R"({"prompt": "Once"})"), "text-8"));
  EXPECT_EQ(log_->last_trace, trace);
  Ask(named(Get("/nowhere"), "lost-9"));
  const auto requests = Json(Get("/v1/requests")).at("requests");
  EXPECT_EQ(requests.at(0).at("id"), "lost-9");
  EXPECT_EQ(requests.at(1).at("id"), "text-8");
  EXPECT_EQ(requests.at(2).at("id"), "chat-7");
}

TEST_F(GatewayTest, WhatWasPutIntoAnswersIsKept) {
  const auto answer = Json(Post("{" + kQuestion + R"(, "user": "ana"})"));
  const auto kept = Json(Get("/v1/audit")).at("answers").at(0);
  EXPECT_EQ(kept.at("id"), answer.at("id"));
  EXPECT_EQ(kept.at("tenant"), "t1");
  EXPECT_EQ(kept.at("user"), "ana");
  EXPECT_EQ(kept.at("mode"), "kv");
  EXPECT_EQ(kept.at("injected_tokens"), answer.at("inferscale").at("injected_tokens"));
  EXPECT_EQ(kept.at("injected").as_array().size() + kept.at("computed").as_array().size(), 1U);
  EXPECT_THAT(boost::json::serialize(kept), testing::Not(HasSubstr("Lisbon")));
  Ask(Post("{" + kQuestion + R"(, "user": "ana", "stream": true})"));
  Json(Post("{" + kQuestion + R"(, "user": "bo"})"));
  EXPECT_EQ(Json(Get("/v1/audit")).at("answers").as_array().size(), 2U);
  EXPECT_EQ(Json(Get("/v1/audit?limit=1")).at("answers").at(0).at("user"), "bo");
  EXPECT_TRUE(Json(Get("/v1/audit?tenant=t2")).at("answers").as_array().empty());
  Ask("DELETE /memories?user_id=ana HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(Json(Get("/v1/audit")).at("answers").as_array().size(), 1U);
}

TEST_F(GatewayTest, AnAdditionCanBeDoneLater) {
  const auto put = Json(HttpPost(
      "/v3/memories/add", R"({"messages": "Ana sails", "user_id": "ana", "async_mode": true})"));
  EXPECT_EQ(put.at("status"), "PENDING");
  const std::string path = "/v1/event/" + std::string(put.at("event_id").as_string()) + "/";
  boost::json::value event;
  do {
    event = Json(Get(path));
  } while (event.at("completed_at").is_null());
  EXPECT_EQ(event.at("status"), "SUCCEEDED");
  EXPECT_EQ(event.at("results").at(0).at("event"), "ADD");
  EXPECT_THAT(boost::json::serialize(event), testing::Not(HasSubstr("sails")));
  const std::string id(event.at("results").at(0).at("id").as_string());
  EXPECT_EQ(Json(Get("/memories/" + id)).at("memory"), "Ana sails");
  EXPECT_THAT(Ask(Get("/v1/event/event-of-another-start")), StartsWith("HTTP/1.1 404"));
}

TEST_F(GatewayTest, AFullQuotaSaysSo) {
  const auto put = [&](const std::string& body) {
    std::string request = HttpPost("/v1/quotas/t1", body);
    return Json(request.replace(0, 4, "PUT"));
  };
  EXPECT_EQ(put(R"({"facts": 1})").at("facts").at("used"), 1);
  const std::string add =
      HttpPost("/memories", R"({"messages": "It rains in Porto", "user_id": "ana"})");
  const std::string refused = Ask(add);
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(refused, HasSubstr(R"("code":"facts_quota")"));
  EXPECT_THAT(refused, HasSubstr("quota of 1 facts"));
  const auto stats = Json(Get("/v1/stats"));
  EXPECT_EQ(stats.at("tenant").at("quota").at("facts").at("limit"), 1);
  EXPECT_TRUE(stats.at("tenant").at("quota").at("kv_bytes").at("limit").is_null());
  const std::string metrics = Ask(Get("/metrics"));
  EXPECT_THAT(metrics, HasSubstr(R"(inferscale_quota_used{tenant="t1",what="facts"} 1)"));
  EXPECT_THAT(metrics, HasSubstr(R"(inferscale_quota_limit{tenant="t1",what="facts"} 1)"));
  EXPECT_EQ(Json(Get("/v1/quotas")).at("quotas").at(0).at("tenant"), "t1");
  put("{}");
  EXPECT_TRUE(Json(Get("/v1/quotas")).at("quotas").as_array().empty());
  EXPECT_TRUE(Json(Get("/v1/stats")).at("tenant").at("quota").is_null());
  EXPECT_THAT(Ask(add), StartsWith("HTTP/1.1 200"));
}

TEST_F(GatewayTest, EveryRouteThatIsOfferedIsDocumented) {
  const auto document = Json(Get("/openapi.json"));
  size_t documented = 0;
  for (const auto& path : document.at("paths").as_object()) {
    documented += path.value().as_object().size();
  }
  size_t offered = 0;
  for (const Route& route : gateway_->routes()) offered += route.offered ? 1 : 0;
  EXPECT_EQ(documented, offered);
  EXPECT_LT(offered, gateway_->routes().size());
  const auto& search = document.at("paths").at("/search").at("post");
  EXPECT_EQ(search.at("summary"), "The memories nearest to a query");
  EXPECT_THAT(boost::json::serialize(search), HasSubstr(R"("query")"));
}

TEST_F(GatewayTest, CompletesAndEmbeds) {
  const auto post = [&](const std::string& path, const std::string& body) {
    std::string request = Post(body);
    return request.replace(request.find("/v1/chat/completions"), 20, path);
  };
  const auto answer = Json(post("/v1/completions", R"({"prompt": "Once"})"));
  EXPECT_EQ(answer.at("object"), "text_completion");
  EXPECT_EQ(std::string(log_->last_prompt.begin(), log_->last_prompt.end()), "Once");
  const std::string stream = Ask(post("/v1/completions", R"({"prompt": "Once", "stream": true})"));
  EXPECT_THAT(stream, HasSubstr(answer.at("choices").at(0).at("text").as_string().c_str()));
  EXPECT_THAT(stream, HasSubstr("data: [DONE]\n\n"));
  log_->answers = {"\xc3\xa9!", "ab"};
  const auto several =
      Json(post("/v1/completions",
                R"({"prompt": "Once", "n": 2, "best_of": 2, "temperature": 1, "logprobs": 1})"));
  EXPECT_EQ(several.at("choices").at(1).at("text"), "ab");
  EXPECT_EQ(several.at("usage").at("completion_tokens"), 5);
  const auto& lists = several.at("choices").at(0).at("logprobs");
  EXPECT_EQ(lists.at("text_offset"), (boost::json::array{0, 1, 1}));
  EXPECT_EQ(lists.at("tokens").at(2), "!");
  EXPECT_EQ(lists.at("token_logprobs").at(2), -0.5);
  EXPECT_EQ(lists.at("top_logprobs").at(2).at("!"), -0.5);
  EXPECT_TRUE(answer.at("choices").at(0).at("logprobs").is_null());
  for (const char* wrong : {R"("logprobs": 6)", R"("best_of": 2)", R"("n": 0)"}) {
    EXPECT_THAT(Ask(post("/v1/completions", R"({"prompt": "x", )" + std::string(wrong) + "}")),
                StartsWith("HTTP/1.1 400"))
        << wrong;
  }
  EXPECT_THAT(Ask(post("/v1/completions", R"({"prompt": "x", "memory": {}})")),
              StartsWith("HTTP/1.1 400"));
  const auto vectors = Json(post("/v1/embeddings", R"({"input": ["a b", "a"]})"));
  EXPECT_EQ(vectors.at("data").at(1).at("embedding").as_array().size(), 32U);
  const auto text =
      Json(post("/v1/embeddings", R"({"input": "a b", "encoding_format": "base64"})"));
  EXPECT_EQ(text.at("data").at(0).at("embedding").as_string().size(), 172U);  // of 32 floats
}

TEST(ErrorAnswer, WhoFindsAFullQueueIsToldWhenToComeAgain) {
  const HttpAnswer full = ErrorAnswer(Error{Code::kExhausted, "8 requests wait already"});
  EXPECT_EQ(full.status, 429U);
  ASSERT_EQ(full.headers.size(), 1U);
  EXPECT_EQ(full.headers[0].first, "Retry-After");
  EXPECT_GT(std::stoi(full.headers[0].second), 0);
  EXPECT_TRUE(ErrorAnswer(Error{Code::kInvalid, "no"}).headers.empty());
}

}  // namespace
}  // namespace inferscale
