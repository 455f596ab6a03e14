#include "base/time_text.h"

#include <fmt/format.h>

#include <chrono>

namespace inferscale {

std::string TimeText(int64_t unix_ms, Millis millis) {
  using namespace std::chrono;
  const sys_time<milliseconds> time{milliseconds(unix_ms)};
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  std::string out =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", static_cast<int>(date.year()),
                  static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                  clock.hours().count(), clock.minutes().count(), clock.seconds().count());
  if (millis == Millis::kAlways || clock.subseconds().count() != 0) {
    out += fmt::format(".{:03}", clock.subseconds().count());
  }
  return out + "Z";
}

}  // namespace inferscale
