#include "server/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509err.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace inferscale {
namespace {

namespace ssl = boost::asio::ssl;

Status CheckReadable(std::string_view what, const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (file.good() && file.peek() != std::ifstream::traits_type::eof()) return {};
  return Fail(Code::kInvalid, "{} {} can't be read: {}", what, path,
              errno != 0 ? std::strerror(errno) : "it is empty");
}

tl::unexpected<Error> Unusable(std::string_view what, const std::string& path,
                               const boost::system::error_code& error) {
  const auto packed = static_cast<unsigned long>(error.value());
  const bool no_pem =
      ERR_GET_LIB(packed) == ERR_LIB_PEM && ERR_GET_REASON(packed) == PEM_R_NO_START_LINE;
  return Fail(Code::kInvalid, "{} {} can't be used: {}", what, path,
              no_pem ? "nothing of that kind is in it, in PEM form" : error.message());
}

}  // namespace

Result<std::shared_ptr<ssl::context>> LoadTls(const TlsFiles& files) {
  constexpr std::string_view kCertificate = "TLS certificate";
  constexpr std::string_view kKey = "TLS key";
  INFERSCALE_TRY(CheckReadable(kCertificate, files.certificate));
  INFERSCALE_TRY(CheckReadable(kKey, files.key));
  const auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION);
  // Without it OpenSSL would ask the terminal.
  SSL_CTX_set_default_passwd_cb(native, [](char*, int, int, void*) { return -1; });
  boost::system::error_code error;
  context->use_certificate_chain_file(files.certificate, error);
  if (error) return Unusable(kCertificate, files.certificate, error);
  context->use_private_key_file(files.key, ssl::context::pem, error);
  const auto packed = static_cast<unsigned long>(error.value());
  const bool strangers = error && ERR_GET_LIB(packed) == ERR_LIB_X509;
  if (error && !strangers) return Unusable(kKey, files.key, error);
  // A key of another algorithm is taken, beside the certificate.
  if (strangers || SSL_CTX_check_private_key(native) != 1) {
    ERR_clear_error();
    return Fail(Code::kInvalid, "TLS key {} is not that of the certificate {}", files.key,
                files.certificate);
  }
  return context;
}

}  // namespace inferscale
