#include "memory/fact.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "memory/fold.h"

namespace inferscale {
namespace {

constexpr std::array kMonths = {"January",   "February", "March",    "April",
                                "May",       "June",     "July",     "August",
                                "September", "October",  "November", "December"};

// Everything that a reader may take for the end of a line.
bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

void AppendOneLine(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const std::string_view before = text;
    if (IsLineBreak(TakeCharacter(text))) {
      out.push_back(' ');
    } else {
      out.append(before.substr(0, before.size() - text.size()));
    }
  }
}

bool StartsWithDigit(std::string_view text) {
  return !text.empty() && text.front() >= '0' && text.front() <= '9';
}

}  // namespace

std::string RenderDate(int64_t unix_ms) {
  using namespace std::chrono;
  constexpr sys_days kFirst = year{1} / January / 1;
  constexpr sys_days kLast = year{9999} / December / 31;
  const auto day =
      std::clamp(floor<days>(sys_time<milliseconds>(milliseconds(unix_ms))), kFirst, kLast);
  const year_month_day date(day);
  return fmt::format("{} {} {}", unsigned{date.day()}, kMonths[unsigned{date.month()} - 1],
                     int{date.year()});
}

Hash128 OwnerHash(const std::string& tenant, const std::string& user) {
  return Hasher().Add(tenant).Add(user).Digest();
}

std::string RenderFact(const Fact& fact) {
  std::string line;
  if (fact.when_ms) line = fmt::format("[{}] ", RenderDate(*fact.when_ms));
  if (!fact.speaker.empty()) {
    AppendOneLine(fact.speaker, line);
    line += ": ";
  }
  AppendOneLine(fact.text, line);
  line.push_back('\n');
  return line;
}

std::string NormalizeForDuplicates(const Fact& fact) {
  std::string words;
  bool gap = false;
  for (std::string_view rest = fact.text; !rest.empty();) {
    const char32_t c = TakeCharacter(rest);
    if (c == '\'' || c == 0x2019) continue;  // don't, dont
    // A mark right before a digit counts: -5 is not 5, and 3.5 not 3 5.
    if (IsSpace(c) || (IsPunctuation(c) && !StartsWithDigit(rest))) {
      gap = !words.empty();
      continue;
    }
    if (gap) words.push_back(' ');
    gap = false;
    AppendUtf8(FoldCase(c), words);
  }
  // A text of marks only says something too: "?!" is not "...".
  if (words.empty()) words = fact.text;
  return fmt::format("{}\n{}\n{}", fact.when_ms ? RenderDate(*fact.when_ms) : "", fact.speaker,
                     words);
}

}  // namespace inferscale
