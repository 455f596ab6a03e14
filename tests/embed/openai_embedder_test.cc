#include "embed/openai_embedder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <functional>
#include <random>
#include <thread>

#include "embedder_contract.h"

namespace inferscale {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace json = boost::json;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;

// Answers one request per connection on a free loopback port, one after another.
class LittleServer {
 public:
  using Handler = std::function<Response(const Request&)>;

  explicit LittleServer(Handler handler)
      : handler_(std::move(handler)),
        acceptor_(context_, {asio::ip::address_v4::loopback(), 0}),
        port_(acceptor_.local_endpoint().port()),
        thread_([this] { Serve(); }) {}
  ~LittleServer() {
    stopping_ = true;
    // Wakes accept().
    asio::ip::tcp::socket knock(context_);
    knock.connect({asio::ip::address_v4::loopback(), port_});
    thread_.join();
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/v1"; }

 private:
  void Serve() {
    while (true) {
      asio::ip::tcp::socket socket(context_);
      acceptor_.accept(socket);
      if (stopping_) return;
      beast::error_code error;
      beast::flat_buffer buffer;
      Request request;
      http::read(socket, buffer, request, error);
      if (error) continue;
      Response response = handler_(request);
      response.prepare_payload();
      http::write(socket, response, error);
    }
  }

  Handler handler_;
  asio::io_context context_;
  asio::ip::tcp::acceptor acceptor_;
  const uint16_t port_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

Response Answer(std::string body, http::status status = http::status::ok) {
  Response response(status, 11);
  response.body() = std::move(body);
  return response;
}

// A vector that depends on the text alone; of any length, as some servers send them.
json::array FakeVector(std::string_view text) {
  std::mt19937_64 random(HashBytes(AsBytes(text)).low);
  json::array vector;
  for (int d = 0; d < 8; ++d) vector.emplace_back(static_cast<double>(random() % 1000) - 499.5);
  return vector;
}

// As an OpenAI server answers, but in reverse order: `index` tells.
Response Embeddings(const Request& request) {
  const json::value body = json::parse(request.body());
  const json::array& input = body.at("input").as_array();
  json::array data;
  for (size_t i = input.size(); i-- > 0;) {
    data.emplace_back(json::object{
        {"object", "embedding"}, {"index", i}, {"embedding", FakeVector(input[i].as_string())}});
  }
  return Answer(json::serialize(json::object{{"object", "list"}, {"data", std::move(data)}}));
}

OpenAiEmbedderOptions Options(const std::string& url) {
  OpenAiEmbedderOptions options;
  options.base_url = url;
  options.model = "little-embed";
  options.timeout = std::chrono::seconds(20);
  return options;
}

TEST(OpenAiEmbedderTest, KeepsTheContract) {
  LittleServer server(Embeddings);
  const auto embedder = OpenOpenAiEmbedder(Options(server.url()));
  ASSERT_TRUE(embedder) << embedder.error().message;
  EXPECT_EQ((*embedder)->dims(), 8U);
  EXPECT_EQ((*embedder)->name(), "little-embed");
  CheckEmbedderContract(**embedder);
}

TEST(OpenAiEmbedderTest, SendsWhatTheProtocolAsksFor) {
  std::vector<Request> seen;
  {
    LittleServer server([&](const Request& request) {
      seen.push_back(request);
      return Embeddings(request);
    });
    auto options = Options(server.url() + "/");
    options.api_key = "sk-test";
    options.batch_texts = 2;
    const auto embedder = OpenOpenAiEmbedder(options);
    ASSERT_TRUE(embedder) << embedder.error().message;
    const std::vector<std::string> texts = {"one", "two", "three"};
    ASSERT_TRUE((*embedder)->Embed(texts));
  }
  ASSERT_EQ(seen.size(), 3U);  // the probe, then 2 + 1 texts
  for (const Request& request : seen) {
    EXPECT_EQ(request.method(), http::verb::post);
    EXPECT_EQ(request.target(), "/v1/embeddings");
    EXPECT_EQ(request[http::field::authorization], "Bearer sk-test");
    EXPECT_EQ(request[http::field::content_type], "application/json");
    EXPECT_EQ(json::parse(request.body()).at("model"), "little-embed");
  }
  EXPECT_EQ(json::parse(seen[1].body()).at("input"), (json::array{"one", "two"}));
  EXPECT_EQ(json::parse(seen[2].body()).at("input"), (json::array{"three"}));
}

TEST(OpenAiEmbedderTest, IdentityNamesServerAndModel) {
  LittleServer server(Embeddings);
  auto options = Options(server.url());
  const auto one = OpenOpenAiEmbedder(options);
  options.model = "other-embed";
  const auto two = OpenOpenAiEmbedder(options);
  ASSERT_TRUE(one && two);
  EXPECT_NE((*one)->identity(), (*two)->identity());
}

TEST(OpenAiEmbedderTest, BadUrlsAreRefused) {
  for (const std::string url : {"", "localhost:80", "http://", "http://:80/v1", "http://a:b/v1",
                                "http://a:/v1", "http://a b/v1", "ftp://a", "http://a:123456"}) {
    const auto embedder = OpenOpenAiEmbedder(Options(url));
    ASSERT_FALSE(embedder) << url;
    EXPECT_EQ(embedder.error().code, Code::kInvalid) << url;
    EXPECT_THAT(embedder.error().message, HasSubstr(url));
  }
  const auto https = OpenOpenAiEmbedder(Options("https://api.example.org/v1"));
  ASSERT_FALSE(https);
  EXPECT_EQ(https.error().code, Code::kUnsupported);
}

TEST(OpenAiEmbedderTest, StatusAndUrlAreInTheErrorButNotTheBody) {
  const std::vector<std::pair<http::status, Code>> cases = {
      {http::status::bad_request, Code::kInvalid},
      {http::status::unauthorized, Code::kInvalid},
      {http::status::too_many_requests, Code::kTransient},
      {http::status::internal_server_error, Code::kTransient}};
  for (const auto& [status, code] : cases) {
    LittleServer server(
        [status = status](const Request&) { return Answer("your text was: secret", status); });
    const auto embedder = OpenOpenAiEmbedder(Options(server.url()));
    ASSERT_FALSE(embedder);
    EXPECT_EQ(embedder.error().code, code);
    EXPECT_THAT(embedder.error().message, HasSubstr(server.url()));
    EXPECT_THAT(embedder.error().message, HasSubstr(std::to_string(static_cast<int>(status))));
    EXPECT_THAT(embedder.error().message, Not(HasSubstr("secret")));
  }
}

TEST(OpenAiEmbedderTest, NobodyThere) {
  std::string url;
  { url = LittleServer(Embeddings).url(); }
  const auto embedder = OpenOpenAiEmbedder(Options(url));
  ASSERT_FALSE(embedder);
  EXPECT_EQ(embedder.error().code, Code::kTransient);
  EXPECT_THAT(embedder.error().message, HasSubstr(url));
}

TEST(OpenAiEmbedderTest, SilentServerTimesOut) {
  // Accepts by the backlog and never answers.
  asio::io_context context;
  asio::ip::tcp::acceptor silent(context, {asio::ip::address_v4::loopback(), 0});
  auto options =
      Options("http://127.0.0.1:" + std::to_string(silent.local_endpoint().port()) + "/v1");
  options.timeout = std::chrono::milliseconds(50);
  const auto embedder = OpenOpenAiEmbedder(options);
  ASSERT_FALSE(embedder);
  EXPECT_EQ(embedder.error().code, Code::kTransient);
  EXPECT_THAT(embedder.error().message, HasSubstr("50 ms"));
}

TEST(OpenAiEmbedderTest, EndlessAnswersAreCutOff) {
  LittleServer server([](const Request&) { return Answer(std::string(100'000, ' ')); });
  auto options = Options(server.url());
  options.max_response_bytes = 10'000;
  const auto embedder = OpenOpenAiEmbedder(options);
  ASSERT_FALSE(embedder);
  EXPECT_EQ(embedder.error().code, Code::kCorrupt);
}

TEST(OpenAiEmbedderTest, DimensionsMustNotChange) {
  std::atomic<int> calls = 0;
  LittleServer server([&](const Request&) {
    return Answer(calls++ == 0 ? R"({"data":[{"embedding":[1,0]}]})"
                               : R"({"data":[{"embedding":[1,0,0]}]})");
  });
  const auto embedder = OpenOpenAiEmbedder(Options(server.url()));
  ASSERT_TRUE(embedder) << embedder.error().message;
  const auto vector = (*embedder)->EmbedOne("text");
  ASSERT_FALSE(vector);
  EXPECT_EQ(vector.error().code, Code::kCorrupt);
}

TEST(ParseEmbeddingsTest, NormalizesAndOrders) {
  const auto vectors = ParseEmbeddings(
      R"({"data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[3,-4.0]}]})", 2);
  ASSERT_TRUE(vectors) << vectors.error().message;
  EXPECT_FLOAT_EQ((*vectors)[0][0], 0.6F);
  EXPECT_FLOAT_EQ((*vectors)[0][1], -0.8F);
  EXPECT_FLOAT_EQ((*vectors)[1][1], 1.0F);
}

TEST(ParseEmbeddingsTest, NonsenseIsCorrupt) {
  for (const std::string body : {
           "",
           "{",
           "[]",
           "{}",
           R"({"data":{}})",
           R"({"data":[]})",
           R"({"data":[{"embedding":[1]},{"embedding":[1]},{"embedding":[1]}]})",
           R"({"data":[1,2]})",
           R"({"data":[{},{}]})",
           R"({"data":[{"embedding":[]},{"embedding":[]}]})",
           R"({"data":[{"embedding":["1"]},{"embedding":[1]}]})",
           R"({"data":[{"embedding":[0,0]},{"embedding":[1,0]}]})",
           R"({"data":[{"embedding":[1e300]},{"embedding":[1]}]})",
           R"({"data":[{"embedding":[1]},{"embedding":[1,2]}]})",
           R"({"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]})",
           R"({"data":[{"index":-1,"embedding":[1]},{"index":0,"embedding":[1]}]})",
           R"({"data":[{"index":2,"embedding":[1]},{"index":0,"embedding":[1]}]})",
           R"({"data":[{"index":"0","embedding":[1]},{"index":1,"embedding":[1]}]})",
       }) {
    const auto vectors = ParseEmbeddings(body, 2);
    ASSERT_FALSE(vectors) << body;
    EXPECT_EQ(vectors.error().code, Code::kCorrupt) << body;
  }
}

}  // namespace
}  // namespace inferscale
