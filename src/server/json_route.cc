#include "server/json_route.h"

#include <chrono>
#include <utility>

#include "server/errors.h"

namespace inferscale {

RouteHandler Json(std::function<Result<boost::json::value>(const Call&)> answer) {
  return [answer = std::move(answer)](const Call& call, HttpResponder& responder) {
    const auto value = answer(call);
    if (!value) return responder.Send(ErrorAnswer(value.error()));
    responder.Send(200, boost::json::serialize(*value));
  };
}

std::string TimeText(int64_t unix_ms) {
  using namespace std::chrono;
  const sys_time<milliseconds> time{milliseconds(unix_ms)};
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", int{date.year()},
                     unsigned{date.month()}, unsigned{date.day()}, clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count(), clock.subseconds().count());
}

}  // namespace inferscale
