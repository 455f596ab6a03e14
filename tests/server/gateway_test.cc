// The gateway over toy models, asked through sockets by bytes.
#include "server/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/json.hpp>
#include <filesystem>
#include <thread>

#include "app/toy_models.h"

namespace inferscale {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace asio = boost::asio;

class Client {
 public:
  explicit Client(uint16_t port) : socket_(context_) {
    socket_.connect({asio::ip::address_v4::loopback(), port});
  }
  void Send(const std::string& bytes) {
    boost::system::error_code ignored;
    asio::write(socket_, asio::buffer(bytes), ignored);
  }
  // All until the server closes.
  std::string ReadAll() {
    std::string all;
    boost::system::error_code error;
    asio::read(socket_, asio::dynamic_buffer(all), error);
    return all;
  }
  std::string ReadSome() {
    std::string some(4096, '\0');
    boost::system::error_code error;
    some.resize(socket_.read_some(asio::buffer(some), error));
    return some;
  }
  void Close() { socket_.close(); }

 private:
  asio::io_context context_;
  asio::ip::tcp::socket socket_;
};

std::string Post(const std::string& body, const std::string& more = "Connection: close\r\n") {
  return "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
         more + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
std::string Get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
}

class ServerTest : public testing::Test {
 protected:
  void Serve(HttpHandler handler, HttpServerOptions options = {}) {
    options.port = 0;
    options.drain = std::chrono::milliseconds(300);
    server_ = HttpServer::Listen(options, std::move(handler)).value();
    thread_ = std::jthread([this](const std::stop_token& stop) { server_->Run(stop); });
  }
  void StopServing() {
    thread_.request_stop();
    thread_.join();
  }
  void TearDown() override {
    if (thread_.joinable()) StopServing();
  }
  std::string Ask(const std::string& bytes) {
    Client client(server_->port());
    client.Send(bytes);
    return client.ReadAll();
  }

  std::unique_ptr<HttpServer> server_;
  std::jthread thread_;
};

TEST_F(ServerTest, KeepsConnectionsAndAnswersInOrder) {
  Serve([](const HttpRequest& request, HttpResponder& responder) {
    responder.Send(200, request.path + request.body);
  });
  Client client(server_->port());
  client.Send("GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n" + Get("/b"));
  const std::string answers = client.ReadAll();
  EXPECT_THAT(answers, StartsWith("HTTP/1.1 200"));
  EXPECT_LT(answers.find("\r\n\r\n/a"), answers.find("\r\n\r\n/b"));
}

TEST_F(ServerTest, LimitsAreKept) {
  HttpServerOptions options;
  options.max_body_bytes = 100;
  options.max_header_bytes = 1000;
  options.request_timeout = std::chrono::milliseconds(200);
  Serve([](const HttpRequest&, HttpResponder& responder) { responder.Send(200, "{}"); }, options);
  EXPECT_THAT(Ask(Post(std::string(101, 'x'))), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Ask("GET /" + std::string(2000, 'x') + " HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(Ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(Ask("GET / HT"), "");  // never comes to its end
  EXPECT_THAT(Ask(Get("/")), StartsWith("HTTP/1.1 200"));
}

TEST_F(ServerTest, TooManyConnectionsAreTurnedAway) {
  HttpServerOptions options;
  options.max_connections = 1;
  Serve([](const HttpRequest&, HttpResponder& responder) { responder.Send(200, "{}"); }, options);
  Client first(server_->port());
  first.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(first.ReadSome(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask(Get("/")), testing::AnyOf(StartsWith("HTTP/1.1 503"), std::string()));
  first.Close();
  while (Ask(Get("/")).find("200 OK") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST_F(ServerTest, AReaderWhoIsGoneIsNoticed) {
  std::atomic<bool> ended{false};
  Serve([&](const HttpRequest&, HttpResponder& responder) {
    responder.StartEvents();
    while (!responder.Gone() && responder.SendEvent("tick")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ended = true;
  });
  Client client(server_->port());
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadSome(), HasSubstr("text/event-stream"));
  EXPECT_FALSE(ended);
  client.Close();
  while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST_F(ServerTest, ASlowReaderIsGivenUp) {
  std::atomic<bool> ended{false};
  HttpServerOptions options;
  options.write_timeout = std::chrono::milliseconds(100);
  Serve(
      [&](const HttpRequest&, HttpResponder& responder) {
        responder.StartEvents();
        while (responder.SendEvent(std::string(1 << 16, 'x'))) {
        }
        ended = true;
      },
      options);
  Client client(server_->port());
  client.Send(Get("/"));  // and reads nothing
  while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST_F(ServerTest, StoppingLetsAnswersEndAndAbortsTheRest) {
  std::atomic<int> begun{0};
  std::atomic<bool> may_end{false};
  Serve([&](const HttpRequest& request, HttpResponder& responder) {
    ++begun;
    const bool endless = request.path == "/endless";
    while (!responder.Gone() && (endless || !may_end)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    responder.Send(200, "done");
  });
  Client idle(server_->port());
  Client quick(server_->port());
  Client endless(server_->port());
  quick.Send("GET /quick HTTP/1.1\r\nHost: x\r\n\r\n");
  endless.Send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n");
  while (begun < 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  thread_.request_stop();
  EXPECT_EQ(idle.ReadAll(), "");
  may_end = true;
  EXPECT_THAT(quick.ReadAll(), testing::EndsWith("done"));
  endless.ReadAll();
  StopServing();  // which would not end if the endless one went on
}

class GatewayTest : public ServerTest {
 protected:
  void SetUp() override {
    dir_ =
        std::filesystem::temp_directory_path() / ("inferscale-gateway-" + std::to_string(getpid()));
    std::filesystem::remove_all(dir_);
    AppOptions options;
    options.data_dir = dir_.string();
    options.arena_bytes = 16 << 20;
    app_ = OpenApp(options, ToyModels(log_)).value();
    AskRequest defaults;
    defaults.scope.tenant = "t1";
    gateway_ = std::make_unique<Gateway>(*app_, clock_, defaults);
    Serve([this](const HttpRequest& request, HttpResponder& responder) {
      gateway_->Handle(request, responder);
    });
    Fact fact;
    fact.scope = {"t1", "ana", "", ""};
    fact.text = "Ana lives in Lisbon";
    ASSERT_TRUE(app_->Add(std::span(&fact, 1)));
    ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  }
  void TearDown() override {
    ServerTest::TearDown();
    gateway_.reset();
    app_.reset();
    std::filesystem::remove_all(dir_);
  }
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
  EXPECT_THAT(Ask(post("/v1/completions", R"({"prompt": "x", "memory": {}})")),
              StartsWith("HTTP/1.1 400"));
  const auto vectors = Json(post("/v1/embeddings", R"({"input": ["a b", "a"]})"));
  EXPECT_EQ(vectors.at("data").at(1).at("embedding").as_array().size(), 32U);
  const auto text =
      Json(post("/v1/embeddings", R"({"input": "a b", "encoding_format": "base64"})"));
  EXPECT_EQ(text.at("data").at(0).at("embedding").as_string().size(), 172U);  // of 32 floats
}

TEST(Loopback, OnlyThisMachine) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.com", ""}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

}  // namespace
}  // namespace inferscale
