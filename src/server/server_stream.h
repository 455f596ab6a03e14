// The bytes of a client: a TCP or a Unix domain socket, with TLS over it or without. One type, so
// that what is built on it is written and compiled once.
#ifndef INFERSCALE_SERVER_SERVER_STREAM_H_
#define INFERSCALE_SERVER_SERVER_STREAM_H_

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <optional>
#include <utility>

namespace inferscale {

// Asio's AsyncReadStream and AsyncWriteStream.
class ServerStream {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Tls = boost::asio::ssl::stream<Socket&>;
  using executor_type = Socket::executor_type;

  explicit ServerStream(boost::asio::io_context& context) : socket_(context) {}

  executor_type get_executor() { return socket_.get_executor(); }
  Socket& socket() { return socket_; }
  Tls* tls() { return tls_ ? &*tls_ : nullptr; }  // null without TLS

  // From now on all goes through TLS; its handshake comes first.
  void UseTls(std::shared_ptr<boost::asio::ssl::context> context) {
    context_ = std::move(context);
    tls_.emplace(socket_, *context_);
  }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Handler>(handler));
    socket_.async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Handler>(handler));
    socket_.async_write_some(buffers, std::forward<Handler>(handler));
  }

  // Without a word; what is under way ends with an error.
  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
  std::shared_ptr<boost::asio::ssl::context> context_;
  std::optional<Tls> tls_;
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_SERVER_STREAM_H_
