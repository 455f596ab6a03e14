#include "base/http/client.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "base/http/socket.h"
#include "base/mutex.h"

namespace inferscale {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Request = http::request<http::string_body>;

class Connection {
 public:
  Connection() : resolver_(socket_.context()) {}

  Status Connect(const HttpUrl& url, const HttpDeadline& deadline) {
    asio::ip::tcp::resolver::results_type endpoints;
    INFERSCALE_TRY(socket_.Wait("connecting", deadline, [&](auto& done) {
      resolver_.async_resolve(url.host, url.port, [&](beast::error_code error, auto found) {
        endpoints = std::move(found);
        done = error;
      });
    }));
    INFERSCALE_TRY(socket_.Wait("connecting", deadline, [&](auto& done) {
      socket_.stream().async_connect(
          endpoints, [&done](beast::error_code error, const auto&) { done = error; });
    }));
    beast::error_code ignored;
    socket_.stream().socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    return {};
  }

  Status Write(const Request& request, const HttpDeadline& deadline) {
    return socket_.Wait("sending", deadline, [&](auto& done) {
      http::async_write(socket_.stream(), request,
                        [&done](beast::error_code error, size_t) { done = error; });
    });
  }

  template <typename Parser>
  Status ReadSome(Parser& parser, const HttpDeadline& deadline) {
    return socket_.Wait("waiting for an answer", deadline, [&](auto& done) {
      http::async_read_some(socket_.stream(), socket_.buffer(), parser,
                            [&done](beast::error_code error, size_t) { done = error; });
    });
  }

  void Cancel() { socket_.Cancel(); }
  bool reusable() { return socket_.sound() && socket_.buffer().size() == 0; }

 private:
  HttpSocket<beast::tcp_stream> socket_;
  asio::ip::tcp::resolver resolver_;
};

// What Asio throws is a system that refuses: no descriptors, no memory.
template <typename Body>
auto Guarded(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    return Fail(Code::kTransient, "{}", error.what());
  }
}

// The answer to one request. `fresh` makes a new connection and sends the request on it.
class Exchange final : public HttpStream {
 public:
  using Give = std::function<void(std::unique_ptr<Connection>)>;
  using Fresh = std::function<Result<std::unique_ptr<Connection>>()>;

  Exchange(std::unique_ptr<Connection> connection, Fresh fresh, Give give,
           std::chrono::milliseconds silence, std::optional<HttpDeadline> deadline,
           uint64_t max_bytes)
      : connection_(std::move(connection)),
        fresh_(std::move(fresh)),
        give_(std::move(give)),
        silence_(silence),
        deadline_(deadline),
        max_bytes_(max_bytes) {
    StartParser();
  }

  Result<unsigned> Status() override {
    return Guarded([&]() -> Result<unsigned> { return ReadHeader(); });
  }

  Result<std::optional<std::string>> Read() override {
    return Guarded([&]() -> Result<std::optional<std::string>> { return ReadBody(); });
  }

  void Cancel() override {
    MutexLock lock(mutex_);
    cancelled_ = true;
    if (connection_ != nullptr) connection_->Cancel();
  }

 private:
  Result<unsigned> ReadHeader() {
    while (!parser_->is_header_done()) {
      inferscale::Status read = Some();
      if (read) continue;
      // A kept connection that the server has closed meanwhile: nothing was answered on it.
      if (fresh_ == nullptr || parser_->got_some() || read.error().code != Code::kTransient) {
        return tl::unexpected(read.error());
      }
      INFERSCALE_ASSIGN(auto connection, std::exchange(fresh_, nullptr)());
      {
        MutexLock lock(mutex_);
        connection_ = std::move(connection);
        if (cancelled_) connection_->Cancel();
      }
      StartParser();
    }
    return parser_->get().result_int();
  }

  Result<std::optional<std::string>> ReadBody() {
    INFERSCALE_TRY(ReadHeader());
    while (true) {
      std::string& body = parser_->get().body();
      if (!body.empty()) return std::exchange(body, {});
      if (parser_->is_done()) return Ended();
      INFERSCALE_TRY(Some());
    }
  }

  void StartParser() {
    parser_.emplace();
    parser_->body_limit(max_bytes_);
  }

  inferscale::Status Some() {
    if (connection_ == nullptr) return Fail(Code::kInternal, "the answer was read to its end");
    const auto until = deadline_.value_or(HttpDeadline::In(silence_));
    return connection_->ReadSome(*parser_, until);
  }

  std::optional<std::string> Ended() {
    MutexLock lock(mutex_);
    if (connection_ != nullptr && parser_->keep_alive() && connection_->reusable()) {
      give_(std::move(connection_));
    }
    connection_ = nullptr;
    return std::nullopt;
  }

  Mutex mutex_;  // of connection_'s pointer against Cancel; it changes in the reader's thread only
  std::unique_ptr<Connection> connection_;
  Fresh fresh_;  // null: the connection is fresh
  Give give_;
  const std::chrono::milliseconds silence_;
  const std::optional<HttpDeadline> deadline_;
  const uint64_t max_bytes_;
  bool cancelled_ GUARDED_BY(mutex_) = false;
  std::optional<http::response_parser<http::string_body>> parser_;
};

}  // namespace

struct HttpClient::Impl {
  HttpUrl url;
  HttpClientOptions options;
  Mutex mutex;
  std::vector<std::unique_ptr<Connection>> idle GUARDED_BY(mutex);

  Request Make(const HttpCall& call) const;
  std::chrono::milliseconds TimeoutOf(const HttpCall& call) const {
    return call.timeout.count() > 0 ? call.timeout : options.timeout;
  }
  std::unique_ptr<Connection> TakeIdle();
  void PutIdle(std::unique_ptr<Connection> connection);
  Result<std::unique_ptr<Connection>> Connected(const Request& request,
                                                std::optional<HttpDeadline> deadline) const;
  Result<std::unique_ptr<HttpStream>> Send(const HttpCall& call,
                                           std::optional<HttpDeadline> deadline,
                                           uint64_t max_bytes);
};

Request HttpClient::Impl::Make(const HttpCall& call) const {
  Request request(http::string_to_verb({call.method.data(), call.method.size()}),
                  url.path + call.path, 11);
  request.set(http::field::host, url.Authority());
  request.set(http::field::accept, "application/json, text/event-stream");
  if (!options.bearer.empty()) {
    request.set(http::field::authorization, "Bearer " + options.bearer);
  }
  if (!call.body.empty()) request.set(http::field::content_type, "application/json");
  if (!call.traceparent.empty()) request.set("traceparent", call.traceparent);
  request.body() = call.body;
  request.prepare_payload();
  return request;
}

std::unique_ptr<Connection> HttpClient::Impl::TakeIdle() {
  MutexLock lock(mutex);
  if (idle.empty()) return nullptr;
  auto connection = std::move(idle.back());
  idle.pop_back();
  return connection;
}

void HttpClient::Impl::PutIdle(std::unique_ptr<Connection> connection) {
  MutexLock lock(mutex);
  if (idle.size() < options.idle_connections) idle.push_back(std::move(connection));
}

Result<std::unique_ptr<Connection>> HttpClient::Impl::Connected(
    const Request& request, std::optional<HttpDeadline> deadline) const {
  auto connection = std::make_unique<Connection>();
  const auto limit = HttpDeadline::In(options.connect_timeout);
  INFERSCALE_TRY(
      connection->Connect(url, deadline ? HttpDeadline::Earlier(*deadline, limit) : limit));
  INFERSCALE_TRY(connection->Write(request, deadline.value_or(HttpDeadline::In(options.timeout))));
  return connection;
}

Result<std::unique_ptr<HttpStream>> HttpClient::Impl::Send(const HttpCall& call,
                                                           std::optional<HttpDeadline> deadline,
                                                           uint64_t max_bytes) {
  const auto request = std::make_shared<const Request>(Make(call));
  const auto silence = TimeoutOf(call);
  std::unique_ptr<Connection> connection = TakeIdle();
  Exchange::Fresh fresh;
  if (connection != nullptr &&
      connection->Write(*request, deadline.value_or(HttpDeadline::In(silence)))) {
    fresh = [this, request, deadline] { return Connected(*request, deadline); };
  } else {
    INFERSCALE_ASSIGN(connection, Connected(*request, deadline));
  }
  return std::make_unique<Exchange>(
      std::move(connection), std::move(fresh),
      [this](std::unique_ptr<Connection> done) { PutIdle(std::move(done)); }, silence, deadline,
      max_bytes);
}

HttpClient::HttpClient(HttpUrl url, HttpClientOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->url = std::move(url);
  impl_->options = std::move(options);
}

HttpClient::~HttpClient() = default;

Result<HttpReply> HttpClient::Call(const HttpCall& call, const std::stop_token& stop) {
  return Guarded([&]() -> Result<HttpReply> {
    INFERSCALE_ASSIGN(const auto stream, impl_->Send(call, HttpDeadline::In(impl_->TimeoutOf(call)),
                                                     impl_->options.max_response_bytes));
    const std::stop_callback cancel(stop, [&] { stream->Cancel(); });
    HttpReply reply;
    INFERSCALE_ASSIGN(reply.status, stream->Status());
    while (true) {
      INFERSCALE_ASSIGN(const auto bytes, stream->Read());
      if (!bytes) return reply;
      reply.body += *bytes;
    }
  });
}

Result<std::unique_ptr<HttpStream>> HttpClient::Open(const HttpCall& call) {
  return Guarded([&]() -> Result<std::unique_ptr<HttpStream>> {
    return impl_->Send(call, std::nullopt, std::numeric_limits<uint64_t>::max());
  });
}

}  // namespace inferscale
