// HTTP requests to one server, over connections that are kept and used again. Every call blocks its
// thread; there is no other thread and no callback.
#ifndef INFERSCALE_BASE_HTTP_CLIENT_H_
#define INFERSCALE_BASE_HTTP_CLIENT_H_

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/http/url.h"
#include "base/result.h"

namespace inferscale {

struct HttpClientOptions {
  std::string bearer;  // sent as the Authorization header's token if not empty
  std::chrono::milliseconds connect_timeout{5'000};
  // Of a call, from its begin to the last byte; of a stream, between two of its bytes.
  std::chrono::milliseconds timeout{30'000};
  size_t max_response_bytes = size_t{64} << 20;
  size_t idle_connections = 8;  // kept for the next request
};

struct HttpCall {
  std::string_view method = "POST";      // or "GET"
  std::string path;                      // goes behind the URL's path
  std::string body{};                    // JSON, if not empty
  std::string traceparent{};             // this header, if not empty
  std::chrono::milliseconds timeout{0};  // 0: the client's
};

struct HttpReply {
  unsigned status = 0;
  std::string body;
};

// An answer that is read while it comes. Used by one thread, but for Cancel. Deleting it before its
// end closes the connection, by which the server learns that nobody reads on.
class HttpStream {
 public:
  virtual ~HttpStream() = default;

  // Waits for the header.
  virtual Result<unsigned> Status() = 0;
  // Bytes of the body as they come, never empty; nullopt at the end. Errors as HttpClient's.
  virtual Result<std::optional<std::string>> Read() = 0;
  // From any thread: what waits and all that follows returns kCancelled.
  virtual void Cancel() = 0;
};

// Thread-safe. Errors: kTransient if there is no connection, it breaks or a timeout passes,
// kCorrupt for what is not HTTP or too long, kCancelled. Messages don't name the server; callers
// do. An answer of any status is no error.
class HttpClient {
 public:
  HttpClient(HttpUrl url, HttpClientOptions options);
  ~HttpClient();  // streams must be gone

  Result<HttpReply> Call(const HttpCall& call, const std::stop_token& stop = {});
  // Returns once the request is sent. Not limited in length.
  Result<std::unique_ptr<HttpStream>> Open(const HttpCall& call);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace inferscale

#endif  // INFERSCALE_BASE_HTTP_CLIENT_H_
