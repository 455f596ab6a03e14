#include "base/http/url.h"

#include <algorithm>
#include <string_view>

namespace inferscale {

std::string HttpUrl::Authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

Result<HttpUrl> ParseHttpUrl(const std::string& text) {
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    return Fail(Code::kUnsupported, "{}: https is not supported, use a proxy", text);
  }
  constexpr std::string_view kScheme = "http://";
  if (!rest.starts_with(kScheme)) {
    return Fail(Code::kInvalid, "{}: must begin with http://", text);
  }
  rest.remove_prefix(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  HttpUrl url;
  url.path = rest.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();

  std::string_view authority = rest.substr(0, slash);
  const size_t bracket = authority.rfind(']');  // of an IPv6 address
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    url.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  url.host = authority;
  const bool digits =
      std::all_of(url.port.begin(), url.port.end(), [](char c) { return c >= '0' && c <= '9'; });
  const bool clean = std::all_of(text.begin(), text.end(), [](char c) { return c > ' '; });
  if (url.host.empty() || url.port.empty() || url.port.size() > 5 || !digits || !clean) {
    return Fail(Code::kInvalid, "{}: not a URL", text);
  }
  return url;
}

}  // namespace inferscale
