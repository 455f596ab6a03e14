// The parts of an http:// URL.
#ifndef INFERSCALE_BASE_HTTP_URL_H_
#define INFERSCALE_BASE_HTTP_URL_H_

#include <string>

#include "base/result.h"

namespace inferscale {

struct HttpUrl {
  std::string host;  // an IPv6 address without its brackets
  std::string port = "80";
  std::string path;  // without a slash at its end

  std::string Authority() const;  // as the Host header has it
};

// kInvalid for what is no URL, kUnsupported for https; the message holds the URL.
Result<HttpUrl> ParseHttpUrl(const std::string& text);

}  // namespace inferscale

#endif  // INFERSCALE_BASE_HTTP_URL_H_
