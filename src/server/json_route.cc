#include "server/json_route.h"

#include <utility>

#include "base/time_text.h"
#include "server/errors.h"

namespace inferscale {

RouteHandler Json(std::function<Result<boost::json::value>(const Call&)> answer) {
  return [answer = std::move(answer)](const Call& call, HttpResponder& responder) {
    const auto value = answer(call);
    if (!value) return responder.Send(ErrorAnswer(value.error()));
    responder.Send(200, boost::json::serialize(*value));
  };
}

std::string TimeText(int64_t unix_ms) { return TimeText(unix_ms, Millis::kAlways); }

}  // namespace inferscale
