// A server that runs in the test, and a client that speaks to it by bytes: over TCP, a Unix domain
// socket, or TLS.
#ifndef INFERSCALE_TESTS_SERVER_HTTP_WORLD_H_
#define INFERSCALE_TESTS_SERVER_HTTP_WORLD_H_

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "server/http_server.h"
#include "server/server_stream.h"

namespace inferscale {

inline std::string HttpPost(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}
inline std::string HttpGet(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
}

class Client {
 public:
  explicit Client(const HttpServerOptions& options, uint16_t port) {
    if (options.unix_path.empty()) {
      stream_.socket().connect(
          boost::asio::ip::tcp::endpoint(boost::asio::ip::address_v4::loopback(), port));
    } else {
      stream_.socket().connect(boost::asio::local::stream_protocol::endpoint(options.unix_path));
    }
    if (!options.tls) return;
    stream_.UseTls(
        std::make_shared<boost::asio::ssl::context>(boost::asio::ssl::context::tls_client));
    boost::system::error_code refused;
    stream_.tls()->handshake(boost::asio::ssl::stream_base::client, refused);
  }
  void Send(const std::string& bytes) {
    WithStream([&](auto& stream) {
      boost::system::error_code ignored;
      boost::asio::write(stream, boost::asio::buffer(bytes), ignored);
    });
  }
  // All until the server closes.
  std::string ReadAll() {
    std::string all;
    WithStream([&](auto& stream) {
      boost::system::error_code error;
      boost::asio::read(stream, boost::asio::dynamic_buffer(all), error);
    });
    return all;
  }
  std::string ReadSome() {
    std::string some(4096, '\0');
    WithStream([&](auto& stream) {
      boost::system::error_code error;
      some.resize(stream.read_some(boost::asio::buffer(some), error));
    });
    return some;
  }
  // Of the certificate that the server has shown.
  std::string SubjectOfServer() {
    const std::unique_ptr<X509, decltype(&X509_free)> shown(
        SSL_get1_peer_certificate(stream_.tls()->native_handle()), &X509_free);
    if (shown == nullptr) return "";
    char name[256] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(shown.get()), NID_commonName, name,
                              sizeof(name));
    return name;
  }
  void Close() { stream_.close(); }
  // As a client that says so before, over TLS.
  void CloseInOrder() {
    if (stream_.tls() != nullptr) {
      stream_.tls()->async_shutdown([](boost::system::error_code) {});
      context_.poll();  // the server's word is not waited for
    }
    Close();
    context_.restart();
    context_.run();
  }

 private:
  template <typename Body>
  void WithStream(const Body& body) {
    if (stream_.tls() != nullptr) return body(*stream_.tls());
    body(stream_.socket());
  }

  boost::asio::io_context context_;
  ServerStream stream_{context_};
};

// Runs until it is destroyed.
class RunningServer {
 public:
  RunningServer(HttpHandler handler, HttpServerOptions options) : options_(std::move(options)) {
    options_.port = 0;
    options_.drain = std::chrono::milliseconds(1000);
    server_ = HttpServer::Listen(options_, std::move(handler)).value();
    thread_ = std::jthread([this](const std::stop_token& stop) { server_->Run(stop); });
  }
  HttpServer& server() { return *server_; }
  Client Connect() { return Client(options_, server_->port()); }
  std::string Ask(const std::string& bytes) {
    Client client = Connect();
    client.Send(bytes);
    return client.ReadAll();
  }
  void AskToStop() { thread_.request_stop(); }

 private:
  HttpServerOptions options_;
  std::unique_ptr<HttpServer> server_;
  std::jthread thread_;  // last: it uses the server
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_SERVER_HTTP_WORLD_H_
