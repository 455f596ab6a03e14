#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>

#include "memory/fold.h"
#include "memory/import.h"
#include "memory/json_time.h"

namespace inferscale {
namespace {

using std::chrono::sys_days;

// Reads characters off the front of a text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool done() const { return rest_.empty(); }
  char Peek() const { return rest_.empty() ? '\0' : rest_.front(); }
  bool Take(char c) {
    if (Peek() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool TakeAny(std::string_view chars) {
    if (rest_.empty() || chars.find(rest_.front()) == std::string_view::npos) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // A number of at least `min` and at most `max` digits.
  std::optional<int> Number(size_t min, size_t max) {
    size_t size = 0;
    int value = 0;
    while (size < rest_.size() && rest_[size] >= '0' && rest_[size] <= '9') {
      if (++size > max) return std::nullopt;
      value = value * 10 + (rest_[size - 1] - '0');
    }
    if (size < min) return std::nullopt;
    rest_.remove_prefix(size);
    return value;
  }
  std::string_view Word() {
    size_t size = 0;
    while (size < rest_.size() && std::isalpha(static_cast<unsigned char>(rest_[size])) != 0) {
      ++size;
    }
    const std::string_view word = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return word;
  }

 private:
  std::string_view rest_;
};

std::optional<int64_t> DateMs(int year, unsigned month, unsigned day) {
  const std::chrono::year_month_day date(std::chrono::year{year}, std::chrono::month{month},
                                         std::chrono::day{day});
  if (year < 1 || !date.ok()) return std::nullopt;
  return int64_t{sys_days(date).time_since_epoch().count()} * 86'400'000;
}

std::optional<int64_t> ClockMs(int hour, int minute, int second) {
  if (hour > 23 || minute > 59 || second > 60) return std::nullopt;  // 60: a leap second
  return ((int64_t{hour} * 60 + minute) * 60 + second) * 1000;
}

// The digits behind the seconds' point, as ms; those beyond the third are dropped.
std::optional<int64_t> Fraction(Scanner& in) {
  int64_t ms = 0;
  int64_t unit = 100;
  if (in.Peek() < '0' || in.Peek() > '9') return std::nullopt;
  while (in.Peek() >= '0' && in.Peek() <= '9') {
    ms += (in.Peek() - '0') * unit;
    unit /= 10;
    in.Take(in.Peek());
  }
  return ms;
}

// "", "Z", "+02:00", "-0530", "+02": what to add to get UTC.
std::optional<int64_t> OffsetMs(Scanner& in) {
  if (in.done() || in.TakeAny("Zz")) return 0;
  const bool east = in.Peek() == '+';
  if (!in.TakeAny("+-")) return std::nullopt;
  Scanner probe = in;
  int hour = 0;
  int minute = 0;
  if (const auto four = probe.Number(4, 4)) {
    in = probe;
    hour = *four / 100;
    minute = *four % 100;
  } else {
    const auto two = in.Number(2, 2);
    if (!two) return std::nullopt;
    hour = *two;
    if (in.Take(':')) {
      const auto more = in.Number(2, 2);
      if (!more) return std::nullopt;
      minute = *more;
    }
  }
  const auto ms = ClockMs(hour, minute, 0);
  if (!ms) return std::nullopt;
  return east ? -*ms : *ms;
}

std::optional<int64_t> ParseIso(std::string_view text) {
  Scanner in(text);
  const auto year = in.Number(4, 4);
  if (!year || !in.Take('-')) return std::nullopt;
  const auto month = in.Number(2, 2);
  if (!month || !in.Take('-')) return std::nullopt;
  const auto day = in.Number(2, 2);
  if (!day) return std::nullopt;
  const auto date = DateMs(*year, static_cast<unsigned>(*month), static_cast<unsigned>(*day));
  if (!date || in.done()) return date;

  if (!in.TakeAny("Tt ")) return std::nullopt;
  const auto hour = in.Number(2, 2);
  if (!hour || !in.Take(':')) return std::nullopt;
  const auto minute = in.Number(2, 2);
  if (!minute) return std::nullopt;
  int second = 0;
  int64_t fraction = 0;
  if (in.Take(':')) {
    const auto given = in.Number(2, 2);
    if (!given) return std::nullopt;
    second = *given;
    if (in.TakeAny(".,")) {
      const auto ms = Fraction(in);
      if (!ms) return std::nullopt;
      fraction = *ms;
    }
  }
  const auto clock = ClockMs(*hour, *minute, second);
  const auto offset = OffsetMs(in);
  if (!clock || !offset || !in.done()) return std::nullopt;
  return *date + *clock + fraction + *offset;
}

// 1 to 12 for an English name or its first three letters, else 0.
unsigned MonthNumber(const std::string& word) {
  constexpr std::array<std::string_view, 12> kNames = {
      "january", "february", "march",     "april",   "may",      "june",
      "july",    "august",   "september", "october", "november", "december"};
  for (unsigned i = 0; i < kNames.size(); ++i) {
    if (word == kNames[i] || word == kNames[i].substr(0, 3)) return i + 1;
  }
  return 0;
}

// What was found so far of a date in words; every part may come once.
struct SpokenTime {
  std::optional<int> day, year, hour, minute;
  std::optional<unsigned> month;
  std::optional<bool> afternoon;

  bool TakeNumber(Scanner& in) {
    Scanner probe = in;
    if (const auto four = probe.Number(4, 4); four && !year) {
      in = probe;
      year = four;
      return true;
    }
    const auto number = in.Number(1, 2);
    if (!number) return false;
    if (in.Take(':')) {
      if (hour) return false;
      hour = number;
      minute = in.Number(2, 2);
      return minute.has_value();
    }
    if (day) return false;
    day = number;
    return true;
  }

  bool TakeWord(Scanner& in) {
    const std::string word = FoldCase(in.Word());
    if (word == "on" || word == "at") return true;
    if (word == "am" || word == "pm") {
      if (!hour || afternoon) return false;
      afternoon = word == "pm";
      return true;
    }
    const unsigned number = MonthNumber(word);
    if (number == 0 || month) return false;
    month = number;
    return true;
  }

  std::optional<int64_t> Ms() const {
    if (!day || !month || !year) return std::nullopt;
    const auto date = DateMs(*year, *month, static_cast<unsigned>(*day));
    if (!date || !hour) return date;
    int hours = *hour;
    if (afternoon) {
      if (hours < 1 || hours > 12) return std::nullopt;
      hours = hours % 12 + (*afternoon ? 12 : 0);
    }
    const auto clock = ClockMs(hours, *minute, 0);
    if (!clock) return std::nullopt;
    return *date + *clock;
  }
};

// "8 May 2023", "May 8, 2023", "1:56 pm on 8 May, 2023".
std::optional<int64_t> ParseSpoken(std::string_view text) {
  Scanner in(text);
  SpokenTime time;
  while (!in.done()) {
    if (in.TakeAny(" ,")) continue;
    if (!time.TakeNumber(in) && !time.TakeWord(in)) return std::nullopt;
  }
  return time.Ms();
}

}  // namespace

Result<int64_t> ParseTime(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (const auto ms = ParseIso(text)) return *ms;
  if (const auto ms = ParseSpoken(text)) return *ms;
  return Fail(Code::kInvalid, "not a time: write 2024-05-08, 2024-05-08T13:56:00Z or 8 May 2024");
}

Result<int64_t> TimeFromJson(const boost::json::value& value) {
  if (const auto* text = value.if_string()) return ParseTime(*text);
  if (value.is_number()) {
    constexpr double kSecondsLimit = 95'617'584'000.0;  // the year 5000
    constexpr double kMsLimit = 253'402'300'800'000.0;  // the year 10000
    double number = value.to_number<double>();
    if (std::fabs(number) < kSecondsLimit) number *= 1000.0;
    if (std::fabs(number) < kMsLimit) return static_cast<int64_t>(std::llround(number));
  }
  return Fail(Code::kInvalid, "not a time: neither a text nor a number of seconds");
}

}  // namespace inferscale
