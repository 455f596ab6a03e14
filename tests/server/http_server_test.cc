// The server's connections, the same over every transport; and what is one transport's alone.
#include "server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <semaphore>

#include "server/certificate.h"
#include "server/http_world.h"

namespace inferscale {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

enum class Transport : uint8_t { kTcp, kUnix, kTls };

class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("inferscale-http-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ / name; }

 private:
  const std::filesystem::path path_;
};

void Answer(const HttpRequest& /*request*/, HttpResponder& responder) { responder.Send(200, "{}"); }

class HttpServerTest : public testing::TestWithParam<Transport> {
 protected:
  void Serve(HttpHandler handler, HttpServerOptions options = {}) {
    if (GetParam() == Transport::kUnix) options.unix_path = folder_.File("socket");
    if (GetParam() == Transport::kTls) {
      options.tls = {folder_.File("cert.pem"), folder_.File("key.pem")};
      MakeCertificate("test", options.tls->certificate, options.tls->key);
    }
    server_.emplace(std::move(handler), options);
  }

  Folder folder_;
  std::optional<RunningServer> server_;
};

std::string NameOf(const testing::TestParamInfo<Transport>& info) {
  if (info.param == Transport::kTcp) return "Tcp";
  return info.param == Transport::kUnix ? "Unix" : "Tls";
}

INSTANTIATE_TEST_SUITE_P(Transports, HttpServerTest,
                         testing::Values(Transport::kTcp, Transport::kUnix, Transport::kTls),
                         NameOf);

TEST_P(HttpServerTest, KeepsConnectionsAndAnswersInOrder) {
  Serve([](const HttpRequest& request, HttpResponder& responder) {
    responder.Send(200, request.path + request.body);
  });
  Client client = server_->Connect();
  client.Send("GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n" + HttpGet("/b"));
  const std::string answers = client.ReadAll();
  EXPECT_THAT(answers, StartsWith("HTTP/1.1 200"));
  EXPECT_LT(answers.find("\r\n\r\n/a"), answers.find("\r\n\r\n/b"));
}

TEST_P(HttpServerTest, LimitsAreKept) {
  HttpServerOptions options;
  options.max_body_bytes = 100;
  options.max_header_bytes = 1000;
  options.request_timeout = std::chrono::milliseconds(1000);
  Serve([](const HttpRequest&, HttpResponder& responder) { responder.Send(200, "{}"); }, options);
  EXPECT_THAT(server_->Ask(HttpPost("/", std::string(101, 'x'))), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(server_->Ask("GET /" + std::string(2000, 'x') + " HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(server_->Ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(server_->Ask("GET / HT"), "");  // never comes to its end
  EXPECT_THAT(server_->Ask(HttpGet("/")), StartsWith("HTTP/1.1 200"));
}

// "" if there is none.
std::string RequestIdIn(const std::string& answer) {
  const std::string name = "\r\nX-Request-ID: ";
  const size_t begin = answer.find(name);
  if (begin == std::string::npos) return "";
  const size_t value = begin + name.size();
  return answer.substr(value, answer.find("\r\n", value) - value);
}

TEST_P(HttpServerTest, EveryAnswerHasARequestId) {
  HttpServerOptions options;
  options.max_body_bytes = 100;
  Serve(
      [](const HttpRequest& request, HttpResponder& responder) {
        if (request.path != "/events") return responder.Send(200, request.request_id);
        responder.StartEvents();
        responder.SendEvent(request.request_id);
      },
      options);
  const auto ask = [&](const std::string& id, const std::string& path = "/") {
    const std::string answer = server_->Ask(
        "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-ID:" + id +
        "\r\n\r\n");
    const std::string given = RequestIdIn(answer);
    // And what the handler is told.
    EXPECT_THAT(answer.substr(answer.find("\r\n\r\n")), HasSubstr(given));
    return given;
  };
  EXPECT_EQ(ask(" a~!7"), "a~!7");
  EXPECT_EQ(ask(" a~!7", "/events"), "a~!7");
  const std::string longest(128, 'x');
  EXPECT_EQ(ask(longest), longest);
  const auto made = testing::MatchesRegex("[0-9a-f]{32}");
  for (const std::string& bad : {longest + "x", std::string("a b"), std::string("caf\xc3\xa9")}) {
    EXPECT_THAT(ask(bad), made);
  }
  EXPECT_THAT(ask("", "/events"), made);
  // Of one connection.
  Client client = server_->Connect();
  client.Send("GET / HTTP/1.1\r\nHost: x\r\nX-Request-ID: one\r\n\r\n" + HttpGet("/"));
  const std::string both = client.ReadAll();
  EXPECT_EQ(RequestIdIn(both), "one");
  EXPECT_THAT(RequestIdIn(both.substr(both.rfind("HTTP/1.1"))), made);
  // Of what no handler sees.
  EXPECT_THAT(RequestIdIn(server_->Ask("nonsense\r\n\r\n")), made);
  const std::string large = "POST / HTTP/1.1\r\nX-Request-ID: two\r\nContent-Length: 101\r\n\r\n";
  EXPECT_EQ(RequestIdIn(server_->Ask(large)), "two");
}

TEST_P(HttpServerTest, TooManyConnectionsAreTurnedAway) {
  HttpServerOptions options;
  options.max_connections = 1;
  Serve([](const HttpRequest&, HttpResponder& responder) { responder.Send(200, "{}"); }, options);
  Client first = server_->Connect();
  first.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(first.ReadSome(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(server_->Ask(HttpGet("/")),
              testing::AnyOf(StartsWith("HTTP/1.1 503"), std::string()));
  first.Close();
  while (server_->Ask(HttpGet("/")).find("200 OK") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST_P(HttpServerTest, AReaderWhoIsGoneIsNoticed) {
  std::atomic<bool> ended{false};
  Serve([&](const HttpRequest&, HttpResponder& responder) {
    responder.StartEvents();
    while (!responder.gone().stop_requested() && responder.SendEvent("tick")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ended = true;
  });
  Client client = server_->Connect();
  client.Send(HttpGet("/"));
  EXPECT_THAT(client.ReadSome(), HasSubstr("text/event-stream"));
  EXPECT_FALSE(ended);
  client.CloseInOrder();
  while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// A handler that waits for something else, and writes nothing.
TEST_P(HttpServerTest, WhoWaitsForAnAnswerMayGo) {
  std::binary_semaphore begun{0};
  std::binary_semaphore ended{0};
  Serve([&](const HttpRequest&, HttpResponder& responder) {
    std::binary_semaphore gone{0};
    const std::stop_callback on_gone(responder.gone(), [&] { gone.release(); });
    begun.release();
    gone.acquire();
    ended.release();
  });
  Client client = server_->Connect();
  client.Send(HttpGet("/"));
  begun.acquire();
  EXPECT_FALSE(ended.try_acquire());
  client.CloseInOrder();
  ended.acquire();
  Client another = server_->Connect();  // the server itself ends what waits when it stops
  another.Send(HttpGet("/"));
  begun.acquire();
  server_.reset();
  EXPECT_TRUE(ended.try_acquire());
}

TEST_P(HttpServerTest, ASlowReaderIsGivenUp) {
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
  Client client = server_->Connect();
  client.Send(HttpGet("/"));  // and reads nothing
  while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST_P(HttpServerTest, StoppingLetsAnswersEndAndAbortsTheRest) {
  std::atomic<int> begun{0};
  std::atomic<bool> may_end{false};
  Serve([&](const HttpRequest& request, HttpResponder& responder) {
    ++begun;
    const bool endless = request.path == "/endless";
    while (!responder.gone().stop_requested() && (endless || !may_end)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    responder.Send(200, "done");
  });
  Client idle = server_->Connect();
  Client quick = server_->Connect();
  Client endless = server_->Connect();
  quick.Send("GET /quick HTTP/1.1\r\nHost: x\r\n\r\n");
  endless.Send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n");
  while (begun < 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  server_->AskToStop();
  EXPECT_EQ(idle.ReadAll(), "");
  may_end = true;
  EXPECT_THAT(quick.ReadAll(), testing::EndsWith("done"));
  endless.ReadAll();
  server_.reset();  // which would not end if the endless one went on
}

TEST(Loopback, OnlyThisMachine) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.com", ""}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

// A connection that shakes no hands holds its place no longer than it may.
TEST(HttpTls, AClientThatSaysNothingIsGivenUp) {
  const Folder folder;
  HttpServerOptions options;
  options.tls = {folder.File("cert.pem"), folder.File("key.pem")};
  options.handshake_timeout = std::chrono::milliseconds(1000);
  MakeCertificate("test", options.tls->certificate, options.tls->key);
  RunningServer server(Answer, options);
  for (const char* said : {"", "\x16\x03", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"}) {
    Client client({}, server.server().port());  // it speaks no TLS
    client.Send(said);
    EXPECT_EQ(client.ReadAll().find("HTTP/1.1 200"), std::string::npos);
  }
  EXPECT_THAT(server.Ask(HttpGet("/")), StartsWith("HTTP/1.1 200"));
}

TEST(HttpTls, OldVersionsAreRefused) {
  const Folder folder;
  HttpServerOptions options;
  options.tls = {folder.File("cert.pem"), folder.File("key.pem")};
  MakeCertificate("test", options.tls->certificate, options.tls->key);
  RunningServer server(Answer, options);
  const auto version = [&](int most) {
    boost::asio::io_context context;
    boost::asio::ssl::context tls(boost::asio::ssl::context::tls_client);
    SSL_CTX_set_security_level(tls.native_handle(), 0);  // which allows TLS 1.1
    SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(tls.native_handle(), most);
    boost::asio::ssl::stream<boost::asio::ip::tcp::socket> stream(context, tls);
    stream.next_layer().connect({boost::asio::ip::address_v4::loopback(), server.server().port()});
    boost::system::error_code refused;
    stream.handshake(boost::asio::ssl::stream_base::client, refused);
    return refused ? std::string() : std::string(SSL_get_version(stream.native_handle()));
  };
  EXPECT_EQ(version(TLS1_1_VERSION), "");
  EXPECT_EQ(version(TLS1_2_VERSION), "TLSv1.2");
  EXPECT_EQ(version(TLS1_3_VERSION), "TLSv1.3");
}

TEST(HttpTls, FilesAreReadAgainWithoutDroppingConnections) {
  const Folder folder;
  HttpServerOptions options;
  options.tls = {folder.File("cert.pem"), folder.File("key.pem")};
  MakeCertificate("before", options.tls->certificate, options.tls->key);
  RunningServer server(Answer, options);
  Client kept = server.Connect();
  EXPECT_EQ(kept.SubjectOfServer(), "before");
  MakeCertificate("after", options.tls->certificate, options.tls->key);
  ASSERT_TRUE(server.server().Reload());
  EXPECT_EQ(server.Connect().SubjectOfServer(), "after");
  // What can't be used changes nothing.
  std::ofstream(options.tls->key) << "nonsense";
  const Status failed = server.server().Reload();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kInvalid);
  EXPECT_EQ(server.Connect().SubjectOfServer(), "after");
  kept.Send(HttpGet("/"));
  EXPECT_THAT(kept.ReadAll(), StartsWith("HTTP/1.1 200"));
}

TEST(HttpTls, BadFilesAreRefusedAtTheStart) {
  const Folder folder;
  const auto refusal = [](const std::string& certificate, const std::string& key) {
    HttpServerOptions options;
    options.port = 0;
    options.tls = {certificate, key};
    const auto server = HttpServer::Listen(options, Answer);
    EXPECT_FALSE(server);
    EXPECT_EQ(server ? Code::kInternal : server.error().code, Code::kInvalid);
    return server ? std::string() : server.error().message;
  };
  const auto file = [&](const char* name) { return folder.File(name); };
  MakeCertificate("a", file("a.pem"), file("a.key"));
  MakeCertificate("b", file("b.pem"), file("b.key"));
  MakeCertificate("c", file("c.pem"), file("c.key"), "P-256", "secret");
  std::ofstream(file("empty")).flush();
  std::ofstream(file("text")) << "no certificate";
  EXPECT_THAT(refusal(file("none"), file("a.key")), HasSubstr("none can't be read"));
  EXPECT_THAT(refusal(file("a.pem"), file("none")), HasSubstr("none can't be read"));
  EXPECT_THAT(refusal(file("empty"), file("a.key")), HasSubstr("it is empty"));
  EXPECT_THAT(refusal(file("text"), file("a.key")), HasSubstr("TLS certificate"));
  EXPECT_THAT(refusal(file("a.pem"), file("text")), HasSubstr("TLS key"));
  EXPECT_THAT(refusal(file("a.pem"), file("a.pem")), HasSubstr("TLS key"));
  EXPECT_THAT(refusal(file("a.pem"), file("b.key")), HasSubstr("is not that of the certificate"));
  EXPECT_THAT(refusal(file("c.pem"), file("c.key")), HasSubstr("TLS key"));
}

TEST(HttpUnix, OnlyThisUserAndOnlyOneServer) {
  const Folder folder;
  HttpServerOptions options;
  options.unix_path = folder.File("socket");
  std::optional<RunningServer> server;
  server.emplace(Answer, options);
  struct stat info {};
  ASSERT_EQ(::stat(options.unix_path.c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  const auto second = HttpServer::Listen(options, Answer);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kConflict);
  EXPECT_THAT(server->Ask(HttpGet("/")), StartsWith("HTTP/1.1 200"));
  server.reset();
  EXPECT_FALSE(std::filesystem::exists(options.unix_path));
}

TEST(HttpUnix, OnlyWhatNobodyListensOnIsReplaced) {
  const Folder folder;
  HttpServerOptions options;
  options.unix_path = folder.File("socket");
  boost::asio::io_context context;
  std::optional<boost::asio::local::stream_protocol::acceptor> other;
  other.emplace(context, boost::asio::local::stream_protocol::endpoint(options.unix_path));
  EXPECT_EQ(HttpServer::Listen(options, Answer).error().code, Code::kConflict);
  other.reset();  // as after a kill: the file stays
  ASSERT_TRUE(std::filesystem::exists(options.unix_path));
  EXPECT_THAT(RunningServer(Answer, options).Ask(HttpGet("/")), StartsWith("HTTP/1.1 200"));
  std::ofstream(options.unix_path) << "mine";
  EXPECT_EQ(HttpServer::Listen(options, Answer).error().code, Code::kInvalid);
  EXPECT_TRUE(std::filesystem::is_regular_file(options.unix_path));
  options.unix_path = folder.File(std::string(200, 'x'));
  EXPECT_EQ(HttpServer::Listen(options, Answer).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace inferscale
