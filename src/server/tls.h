// What a gateway that speaks TLS shows and proves itself with.
#ifndef INFERSCALE_SERVER_TLS_H_
#define INFERSCALE_SERVER_TLS_H_

#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "base/result.h"
#include "server/http_server.h"

namespace inferscale {

// For TLS 1.2 and later. kInvalid for files that can't be read or used, or do not belong together.
Result<std::shared_ptr<boost::asio::ssl::context>> LoadTls(const TlsFiles& files);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_TLS_H_
