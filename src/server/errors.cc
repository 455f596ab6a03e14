#include "server/errors.h"

#include <fmt/format.h>

namespace inferscale {

unsigned HttpStatusOf(Code code) {
  switch (code) {
    case Code::kInvalid:
    case Code::kUnsupported:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kConflict:
      return 409;
    case Code::kExhausted:
      return 429;
    case Code::kOverQuota:
      return 403;
    case Code::kTransient:
      return 503;
    case Code::kCancelled:
    case Code::kCorrupt:
    case Code::kInternal:
      return 500;
  }
  return 500;
}

namespace {

constexpr int kBusySeconds = 5;  // until who found a full queue is to come again

std::string_view TypeOf(unsigned status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

HttpAnswer ErrorAnswer(unsigned status, std::string_view message) {
  return {.status = status, .body = HttpErrorBody(message, TypeOf(status))};
}

HttpAnswer ErrorAnswer(const Error& error) {
  const unsigned status = HttpStatusOf(error.code);
  // Programs tell it by its code from what a key may not do.
  const std::string_view code = error.code == Code::kOverQuota ? "facts_quota" : "";
  HttpAnswer answer{.status = status, .body = HttpErrorBody(error.message, TypeOf(status), code)};
  if (error.code == Code::kExhausted) {
    answer.headers.emplace_back("Retry-After", fmt::format("{}", kBusySeconds));
  }
  return answer;
}

}  // namespace inferscale
