// HTTP for the gateway: connections, limits, time. What is asked and answered is others' business.
#ifndef INFERSCALE_SERVER_HTTP_SERVER_H_
#define INFERSCALE_SERVER_HTTP_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace inferscale {

struct TlsFiles {
  std::string certificate;  // PEM; those that lead to its root may follow it
  std::string key;          // PEM, without a passphrase
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;           // 0: any free one
  std::string unix_path{};        // a Unix domain socket instead, for this user only
  std::optional<TlsFiles> tls{};  // over TCP
  size_t max_connections = 1024;
  uint32_t max_header_bytes = 16 << 10;
  uint64_t max_body_bytes = 4 << 20;
  std::chrono::milliseconds handshake_timeout{10'000};
  std::chrono::milliseconds request_timeout{60'000};  // from the last answer to a whole request
  std::chrono::milliseconds write_timeout{30'000};    // of a piece of an answer
  std::chrono::milliseconds drain{10'000};            // for running answers, once told to stop
};

struct HttpRequest {
  std::string method;
  std::string path;   // as it was sent, without the query
  std::string query;  // as it was sent, without the '?'
  std::string host;   // this header and the next ones
  std::string content_type;
  std::string authorization;
  std::string api_key;  // X-API-Key
  std::string if_none_match;
  std::string mcp_version;  // MCP-Protocol-Version
  std::string mcp_method;   // Mcp-Method
  std::string mcp_name;     // Mcp-Name
  std::string request_id;  // X-Request-ID as in the answer: the client's if it is one, or a new one
  std::string traceparent;  // of the W3C's trace context, if it is visible ASCII
  std::string body;
};

struct HttpAnswer {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers{};
};

// Takes the answer to one request: either Send once, or StartEvents and then events. Used by the
// thread that handles the request.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;
  virtual void Send(const HttpAnswer& answer) = 0;
  void Send(unsigned status, std::string_view body) {  // JSON
    Send(HttpAnswer{.status = status, .body = std::string(body)});
  }
  // False once the client is gone or too slow: nothing more reaches it.
  virtual bool StartEvents() = 0;
  virtual bool SendEvent(std::string_view data) = 0;
  // Requested soon after the client has closed its connection (also if only its half of it), and
  // when the server stops and waits no longer. By another thread: what it calls must not block.
  virtual std::stop_token gone() const = 0;
};

// Called by a thread of the connection's, several at a time. The stream ends when it returns.
using HttpHandler = std::function<void(const HttpRequest&, HttpResponder&)>;

class HttpServer {
 public:
  // kInvalid for an address that is none and TLS files that can't be used, kConflict if another
  // process listens on the Unix path, kTransient if the system refuses.
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpServerOptions& options,
                                                    HttpHandler handler);
  virtual ~HttpServer() = default;
  virtual uint16_t port() const = 0;  // 0 on a Unix path
  // Reads the TLS files again, for connections that come from now on; those that are open go on as
  // they began. After an error the former files stay in use. From any thread.
  virtual Status Reload() = 0;
  // Serves until `stop`; then no new request is taken, and running ones have `drain` to end. A
  // thread for each connection.
  virtual void Run(const std::stop_token& stop) = 0;
};

bool IsLoopback(const std::string& host);

// {"error": {...}, "detail": ...}: the first is what OpenAI's clients read, the second Mem0's.
std::string HttpErrorBody(std::string_view message, std::string_view type,
                          std::string_view code = "");

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_HTTP_SERVER_H_
