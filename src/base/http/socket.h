// A connection and the loop that drives it: asynchronous operations, so that they can time out
// and be cancelled, of which one at a time runs to its end in the caller's thread. Callbacks, since
// clang 14 can't compile coroutines with its undefined-behaviour sanitizer.
#ifndef INFERSCALE_BASE_HTTP_SOCKET_H_
#define INFERSCALE_BASE_HTTP_SOCKET_H_

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <chrono>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace inferscale {

using HttpClock = std::chrono::steady_clock;

// When an operation is late, and the time that the setting gave, which is what an error names: an
// operation may begin when a part of it has been spent.
struct HttpDeadline {
  std::chrono::milliseconds given{0};
  HttpClock::time_point at;

  static HttpDeadline In(std::chrono::milliseconds given) {
    return {given, HttpClock::now() + given};
  }
  static HttpDeadline Earlier(const HttpDeadline& a, const HttpDeadline& b) {
    return b.at < a.at ? b : a;
  }
};

// `Stream` is what operations are begun on; close() ends those that run. Used by one thread, but
// for Cancel. What Asio throws (no descriptors, no memory) comes out.
template <typename Stream>
class HttpSocket {
 public:
  HttpSocket() : context_(1), stream_(context_) {}

  boost::asio::io_context& context() { return context_; }
  Stream& stream() { return stream_; }
  boost::beast::flat_buffer& buffer() { return buffer_; }
  // Of the operation that failed last; none if it was cancelled or late.
  boost::beast::error_code error() const { return error_; }
  // Every operation so far has ended well.
  bool sound() const { return !cancelled_ && !broken_; }

  // `start` begins one operation, which puts its error code into `done`. kTransient if it fails or
  // the deadline passes, kCorrupt for what is not HTTP or too long, kCancelled.
  template <typename Start>
  Status Wait(std::string_view what, const HttpDeadline& deadline, Start start) {
    std::optional<boost::beast::error_code> done;
    context_.restart();
    start(done);
    // Cancel may have come before restart(), which forgets its stop().
    if (!cancelled_) context_.run_until(deadline.at);
    if (done && !done->failed()) return {};
    broken_ = true;
    error_ = done.value_or(boost::beast::error_code());
    if (done) return Failed(what);
    // The operation still refers to `done` and to the caller's objects: it ends here.
    stream_.close();
    context_.restart();
    context_.run();
    if (cancelled_) return Fail(Code::kCancelled, "the request was cancelled");
    return Fail(Code::kTransient, "no answer within {} ms ({})", deadline.given.count(), what);
  }

  // From any thread, and for good.
  void Cancel() {
    cancelled_ = true;
    context_.stop();
  }

 private:
  Status Failed(std::string_view what) const {
    namespace http = boost::beast::http;
    static const auto& http_errors = http::make_error_code(http::error::body_limit).category();
    const bool no_http = error_.category() == http_errors && error_ != http::error::end_of_stream &&
                         error_ != http::error::partial_message;
    return Fail(no_http ? Code::kCorrupt : Code::kTransient, "{} ({})", error_.message(), what);
  }

  boost::asio::io_context context_;
  Stream stream_;
  boost::beast::flat_buffer buffer_;
  boost::beast::error_code error_;
  std::atomic<bool> cancelled_{false};
  bool broken_ = false;
};

}  // namespace inferscale

#endif  // INFERSCALE_BASE_HTTP_SOCKET_H_
