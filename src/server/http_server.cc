#include "server/http_server.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <cstring>
#include <exception>
#include <list>
#include <thread>
#include <utility>

#include "base/http/socket.h"
#include "base/http/sse.h"
#include "base/mutex.h"
#include "server/request_id.h"
#include "server/server_stream.h"
#include "server/socket_file.h"
#include "server/tls.h"

namespace inferscale {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Parser = http::request_parser<http::string_body>;
using Protocol = asio::generic::stream_protocol;

constexpr std::string_view kServerName = "inferscale";
constexpr std::string_view kRequestId = "X-Request-ID";
// How often it is looked whether those who wait for an answer are still there.
constexpr std::chrono::milliseconds kWatch{200};

// One connection: requests one after another, in a thread of its own.
class Session final : public HttpResponder {
 public:
  Session(const HttpServerOptions& options, const HttpHandler& handler,
          const std::atomic<bool>& aborted)
      : options_(options), handler_(handler), aborted_(aborted) {}

  ServerStream& stream() { return socket_.stream(); }
  bool done() const { return done_; }

  // `tls` is null where none is spoken.
  void Start(std::shared_ptr<asio::ssl::context> tls) {
    if (tls != nullptr) stream().UseTls(std::move(tls));
    thread_ = std::jthread([this] {
      try {
        Serve();
      } catch (const std::exception& error) {
        spdlog::error("a connection ended: {}", error.what());
      }
      done_ = true;
    });
  }

  // Ends it now if it waits for a request, else after the answer.
  void Stop() {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (waiting_) socket_.Cancel();
  }
  void Abort() {
    socket_.Cancel();
    SayGone();
  }
  // Tells the request's handler if its client is gone.
  void Watch() {
    std::stop_source gone;
    {
      MutexLock lock(mutex_);
      if (!answering_) return;
      // Bytes that wait to be read, as the end of a TLS session does, hide no end here. A write
      // that is late closes the socket meanwhile: whatever its number names then, this client is
      // gone.
      pollfd state{handle_, POLLRDHUP, 0};
      if (::poll(&state, 1, 0) <= 0) return;
      gone = gone_;
    }
    gone.request_stop();
  }

  using HttpResponder::Send;
  void Send(const HttpAnswer& answer) override {
    http::response<http::string_body> response(static_cast<http::status>(answer.status), version_);
    response.set(http::field::server, kServerName);
    response.set(http::field::content_type, answer.content_type);
    response.set(kRequestId, request_.request_id);
    response.set("X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : answer.headers) response.set(name, value);
    response.keep_alive(keep_alive_);
    response.body() = answer.body;
    response.prepare_payload();
    // It would be that of the answer that the client has already.
    if (answer.status == 304) response.erase(http::field::content_length);
    answered_ = true;
    Write([&](auto& done) {
      http::async_write(stream(), response,
                        [&done](beast::error_code error, size_t) { done = error; });
    });
  }

  bool StartEvents() override {
    http::response<http::empty_body> response(http::status::ok, version_);
    response.set(http::field::server, kServerName);
    response.set(kRequestId, request_.request_id);
    response.set(http::field::content_type, "text/event-stream");
    response.set(http::field::cache_control, "no-cache");
    response.keep_alive(keep_alive_);
    response.chunked(true);
    http::response_serializer<http::empty_body> serializer(response);
    answered_ = streaming_ = true;
    return Write([&](auto& done) {
      http::async_write_header(stream(), serializer,
                               [&done](beast::error_code error, size_t) { done = error; });
    });
  }

  bool SendEvent(std::string_view data) override {
    const std::string event = MakeSseEvent(data);
    return Write([&](auto& done) {
      asio::async_write(stream(), http::make_chunk(asio::buffer(event)),
                        [&done](beast::error_code error, size_t) { done = error; });
    });
  }

  std::stop_token gone() const override {
    MutexLock lock(mutex_);
    return gone_.get_token();
  }

 private:
  void Serve() {
    beast::error_code not_tcp;
    stream().socket().set_option(asio::ip::tcp::no_delay(true), not_tcp);
    if (!ShakeHands()) return stream().close();
    while (ReadRequest()) {
      answered_ = streaming_ = false;
      SetAnswering(true);
      handler_(request_, *this);
      SetAnswering(false);
      if (streaming_) {
        Write([&](auto& done) {
          asio::async_write(stream(), http::make_chunk_last(),
                            [&done](beast::error_code error, size_t) { done = error; });
        });
      } else if (!answered_) {
        Send(500, HttpErrorBody("the request was not answered", "server_error"));
      }
      if (!keep_alive_ || !socket_.sound()) break;
    }
    Close();
  }

  // Waits for what the client has to begin, which Stop() ends.
  template <typename Start>
  Status Await(std::string_view what, std::chrono::milliseconds timeout, Start start) {
    {
      MutexLock lock(mutex_);
      if (stopping_) return Fail(Code::kCancelled, "the server stops");
      waiting_ = true;
    }
    Status awaited = socket_.Wait(what, HttpDeadline::In(timeout), start);
    MutexLock lock(mutex_);
    waiting_ = false;
    keep_alive_ = !stopping_;
    return awaited;
  }

  void SetAnswering(bool answering) {
    MutexLock lock(mutex_);
    answering_ = answering;
    if (!answering) return;
    handle_ = stream().socket().native_handle();
    gone_ = std::stop_source();
    if (aborted_) gone_.request_stop();
  }

  bool ShakeHands() {
    if (stream().tls() == nullptr) return true;
    const Status shaken =
        Await("the TLS handshake", options_.handshake_timeout, [this](auto& done) {
          stream().tls()->async_handshake(asio::ssl::stream_base::server,
                                          [&done](beast::error_code error) { done = error; });
        });
    if (!shaken) spdlog::debug("no TLS: {}", shaken.error().message);
    return shaken.has_value();
  }

  // False: nothing more is to be answered on this connection.
  bool ReadRequest() {
    Parser parser;
    parser.header_limit(options_.max_header_bytes);
    parser.body_limit(options_.max_body_bytes);
    const Status read = Await("reading a request", options_.request_timeout, [&](auto& done) {
      http::async_read(stream(), socket_.buffer(), parser,
                       [&done](beast::error_code error, size_t) { done = error; });
    });
    version_ = 11;
    request_.request_id = RequestId(parser.get()[kRequestId]);
    if (!read) {
      keep_alive_ = false;
      if (read.error().code == Code::kCorrupt) Refuse();
      return false;
    }
    auto message = parser.release();
    version_ = message.version();
    keep_alive_ = keep_alive_ && message.keep_alive();
    request_.method = std::string(message.method_string());
    const auto target = message.target();
    const size_t mark = std::min(target.find('?'), target.size());
    request_.path = std::string(target.substr(0, mark));
    request_.query = std::string(target.substr(std::min(target.size(), mark + 1)));
    request_.host = std::string(message[http::field::host]);
    request_.content_type = std::string(message[http::field::content_type]);
    request_.authorization = std::string(message[http::field::authorization]);
    request_.api_key = std::string(message["X-API-Key"]);
    request_.if_none_match = std::string(message[http::field::if_none_match]);
    request_.mcp_version = std::string(message["MCP-Protocol-Version"]);
    request_.mcp_method = std::string(message["Mcp-Method"]);
    request_.mcp_name = std::string(message["Mcp-Name"]);
    const std::string_view trace = message["traceparent"];
    request_.traceparent = IsPlainId(trace) ? trace : "";
    request_.body = std::move(message.body());
    return true;
  }

  void Refuse() {
    const beast::error_code error = socket_.error();
    const unsigned status = error == http::error::body_limit     ? 413
                            : error == http::error::header_limit ? 431
                                                                 : 400;
    Send(status, HttpErrorBody(error.message(), "invalid_request_error"));
  }

  template <typename Start>
  bool Write(Start start) {
    const auto deadline = HttpDeadline::In(options_.write_timeout);
    if (socket_.Wait("writing", deadline, start)) return true;
    SayGone();
    return false;
  }

  // Not under the lock: what stops may ask this session something.
  void SayGone() {
    std::stop_source gone;
    {
      MutexLock lock(mutex_);
      gone = gone_;
    }
    gone.request_stop();
  }

  // What the client still sends is read and dropped for a moment: closing with unread bytes would
  // reset the connection, and the answer with it.
  void Close() {
    const auto deadline = HttpDeadline::In(std::chrono::milliseconds(500));
    if (stream().tls() != nullptr && socket_.sound()) {
      // Ours is sent, and the client's awaited; if data comes instead, that is dropped below.
      (void)socket_.Wait("closing TLS", deadline, [this](auto& done) {
        stream().tls()->async_shutdown([&done](beast::error_code failed) { done = failed; });
      });
    }
    beast::error_code error;
    stream().socket().shutdown(asio::socket_base::shutdown_send, error);
    std::array<char, 4096> rest{};
    while (!error && !aborted_) {
      const Status read = socket_.Wait("closing", deadline, [&](auto& done) {
        stream().socket().async_read_some(
            asio::buffer(rest), [&done](beast::error_code failed, size_t) { done = failed; });
      });
      if (!read) break;
    }
    stream().close();
  }

  const HttpServerOptions& options_;
  const HttpHandler& handler_;
  const std::atomic<bool>& aborted_;
  HttpSocket<ServerStream> socket_;
  HttpRequest request_;
  unsigned version_ = 11;
  bool keep_alive_ = true;
  bool answered_ = false;
  bool streaming_ = false;
  mutable Mutex mutex_;
  std::stop_source gone_ GUARDED_BY(mutex_);  // of the request that is being answered
  bool answering_ GUARDED_BY(mutex_) = false;
  int handle_ GUARDED_BY(mutex_) = -1;  // the socket's, as it was when answering began
  bool waiting_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> done_{false};
  std::jthread thread_;  // last: it uses the rest
};

Result<asio::ip::address> ParseAddress(const std::string& host) {
  beast::error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) return Fail(Code::kInvalid, "'{}' is no IP address", host);
  return address;
}

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(HttpServerOptions options, HttpHandler handler)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        acceptor_(context_),
        watch_(context_) {}

  Status Open() {
    INFERSCALE_TRY(Reload());
    return options_.unix_path.empty() ? OpenTcp() : OpenUnix();
  }

  uint16_t port() const override { return port_; }

  Status Reload() override {
    if (!options_.tls) return {};
    INFERSCALE_ASSIGN(auto fresh, LoadTls(*options_.tls));
    MutexLock lock(tls_mutex_);
    tls_ = std::move(fresh);
    return {};
  }

  void Run(const std::stop_token& stop) override {
    Accept();
    WatchOn();
    {
      const std::stop_callback stopped(stop, [this] { context_.stop(); });
      if (!stop.stop_requested()) context_.run();
    }
    beast::error_code ignored;
    acceptor_.close(ignored);
    socket_file_.reset();
    for (const auto& session : sessions_) session->Stop();
    const auto until = HttpClock::now() + options_.drain;
    while (Reap() > 0 && HttpClock::now() < until) {
      for (const auto& session : sessions_) session->Watch();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    aborted_ = true;
    for (const auto& session : sessions_) session->Abort();
    sessions_.clear();
  }

 private:
  Status OpenTcp() {
    INFERSCALE_ASSIGN(const asio::ip::address address, ParseAddress(options_.host));
    const asio::ip::tcp::endpoint asked(address, options_.port);
    beast::error_code error = Bind(asked);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return Fail(Code::kTransient, "can't listen on {} port {}: {}", options_.host, options_.port,
                  error.message());
    }
    const Protocol::endpoint given = acceptor_.local_endpoint();
    asio::ip::tcp::endpoint bound;
    bound.resize(given.size());
    std::memcpy(bound.data(), given.data(), given.size());
    port_ = bound.port();
    return {};
  }

  Status OpenUnix() {
    INFERSCALE_ASSIGN(socket_file_, SocketFile::Claim(options_.unix_path));
    beast::error_code error = Bind(asio::local::stream_protocol::endpoint(options_.unix_path));
    if (!error) {
      INFERSCALE_TRY(socket_file_->Bound());
      acceptor_.listen(asio::socket_base::max_listen_connections, error);
    }
    if (!error) return {};
    return Fail(Code::kTransient, "can't listen on {}: {}", options_.unix_path, error.message());
  }

  beast::error_code Bind(const Protocol::endpoint& endpoint) {
    beast::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    return error;
  }

  void Accept() {
    auto next = std::make_unique<Session>(options_, handler_, aborted_);
    auto& socket = next->stream().socket();
    acceptor_.async_accept(
        socket, [this, session = std::move(next)](beast::error_code error) mutable {
          if (error == asio::error::operation_aborted) return;
          if (!error) Take(std::move(session));
          if (error)
            std::this_thread::sleep_for(std::chrono::milliseconds(50));  // no descriptors left
          Accept();
        });
  }

  void WatchOn() {
    watch_.expires_after(kWatch);
    watch_.async_wait([this](beast::error_code error) {
      if (error) return;
      for (const auto& session : sessions_) session->Watch();
      WatchOn();
    });
  }

  void Take(std::unique_ptr<Session> session) {
    std::shared_ptr<asio::ssl::context> tls;
    {
      MutexLock lock(tls_mutex_);
      tls = tls_;
    }
    if (Reap() >= options_.max_connections) {
      if (tls != nullptr) return;  // a word would take a handshake
      constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
      const auto handle = session->stream().socket().native_handle();
      if (::send(handle, kFull.data(), kFull.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        spdlog::debug("a connection too many was closed without a word");
      }
      return;
    }
    sessions_.push_back(std::move(session));
    sessions_.back()->Start(std::move(tls));
  }

  // Drops the connections that have ended; how many are left.
  size_t Reap() {
    sessions_.remove_if([](const auto& session) { return session->done(); });
    return sessions_.size();
  }

  const HttpServerOptions options_;
  const HttpHandler handler_;
  asio::io_context context_{1};
  std::unique_ptr<SocketFile> socket_file_;  // if it listens on one
  asio::basic_socket_acceptor<Protocol> acceptor_;
  asio::steady_timer watch_;
  uint16_t port_ = 0;
  std::atomic<bool> aborted_{false};
  std::list<std::unique_ptr<Session>> sessions_;  // of the thread in Run
  Mutex tls_mutex_;
  std::shared_ptr<asio::ssl::context> tls_ GUARDED_BY(tls_mutex_);  // of new connections
};

}  // namespace

bool IsLoopback(const std::string& host) {
  const auto address = ParseAddress(host);
  return address && address->is_loopback();
}

std::string HttpErrorBody(std::string_view message, std::string_view type, std::string_view code) {
  const boost::json::value code_or_null =
      code.empty() ? boost::json::value(nullptr) : boost::json::value(code);
  return boost::json::serialize(boost::json::object{
      {"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", code_or_null}}},
      {"detail", message}});
}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpServerOptions& options,
                                                       HttpHandler handler) {
  auto server = std::make_unique<HttpServerImpl>(options, std::move(handler));
  INFERSCALE_TRY(server->Open());
  return server;
}

}  // namespace inferscale
