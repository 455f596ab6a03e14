#include "cli/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstdio>
#include <span>

#include "base/time_text.h"
#include "base/utf8.h"

namespace inferscale {
namespace {

// The character that starts at `at` of valid UTF-8; moves `at` behind it.
char32_t NextCharacter(std::string_view text, size_t* at) {
  const auto lead = static_cast<unsigned char>(text[(*at)++]);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t value = lead & (0x3FU >> more);
  for (int i = 0; i < more && *at < text.size(); ++i) {
    value = value << 6 | (static_cast<unsigned char>(text[(*at)++]) & 0x3FU);
  }
  return value;
}

struct Range {
  char32_t first, last;
};
// Unicode 15 blocks; whole blocks are close enough for columns of a table.
constexpr std::array kNoWidth = {
    Range{0x300, 0x36F},   Range{0x483, 0x489},   Range{0x591, 0x5BD},   Range{0x610, 0x61A},
    Range{0x64B, 0x65F},   Range{0x200B, 0x200F}, Range{0x202A, 0x202E}, Range{0x2060, 0x2064},
    Range{0x20D0, 0x20FF}, Range{0xFE00, 0xFE0F}, Range{0xFEFF, 0xFEFF}};
constexpr std::array kTwoWide = {
    Range{0x1100, 0x115F},   Range{0x2E80, 0x303E},   Range{0x3041, 0xA4CF},
    Range{0xAC00, 0xD7A3},   Range{0xF900, 0xFAFF},   Range{0xFE30, 0xFE6F},
    Range{0xFF00, 0xFF60},   Range{0xFFE0, 0xFFE6},   Range{0x1F300, 0x1F64F},
    Range{0x1F680, 0x1F6FF}, Range{0x1F900, 0x1FAFF}, Range{0x20000, 0x3FFFD}};

bool In(std::span<const Range> ranges, char32_t character) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    return character >= range.first && character <= range.last;
  });
}

size_t Columns(char32_t character) {
  if (In(kNoWidth, character)) return 0;
  return In(kTwoWide, character) ? 2 : 1;
}

// Text direction marks count as controls: they would rearrange a line on the terminal.
bool IsControl(char32_t character) {
  return character < 0x20 || (character >= 0x7F && character < 0xA0) || character == 0x2028 ||
         character == 0x2029 || (character >= 0x202A && character <= 0x202E) ||
         (character >= 0x2066 && character <= 0x2069);
}

std::string WithoutControls(std::string_view text, std::string_view keep) {
  const std::string valid = ReplaceInvalidUtf8(text);
  std::string out;
  out.reserve(valid.size());
  for (size_t at = 0; at < valid.size();) {
    const size_t start = at;
    const char32_t character = NextCharacter(valid, &at);
    const bool kept = character < 0x80 && keep.find(static_cast<char>(character)) != keep.npos;
    if (IsControl(character) && !kept) {
      out += ' ';
    } else {
      out.append(valid, start, at - start);
    }
  }
  return out;
}

void AppendJson(const boost::json::value& value, std::string* out) {
  switch (value.kind()) {
    case boost::json::kind::object: {
      out->push_back('{');
      const char* separator = "";
      for (const auto& member : value.get_object()) {
        out->append(separator);
        AppendJson(boost::json::string(member.key()), out);
        out->push_back(':');
        AppendJson(member.value(), out);
        separator = ",";
      }
      out->push_back('}');
      return;
    }
    case boost::json::kind::array: {
      out->push_back('[');
      const char* separator = "";
      for (const auto& item : value.get_array()) {
        out->append(separator);
        AppendJson(item, out);
        separator = ",";
      }
      out->push_back(']');
      return;
    }
    case boost::json::kind::string:
      out->append(boost::json::serialize(ReplaceInvalidUtf8(std::string_view(value.get_string()))));
      return;
    case boost::json::kind::double_:
      // Boost would write 38.1 as 3.81E1.
      out->append(std::isfinite(value.get_double()) ? fmt::format("{}", value.get_double())
                                                    : "null");
      return;
    case boost::json::kind::null:
    case boost::json::kind::bool_:
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
      out->append(boost::json::serialize(value));
      return;
  }
}

}  // namespace

std::string OneLine(std::string_view text) { return WithoutControls(text, ""); }
std::string SafeText(std::string_view text) { return WithoutControls(text, "\n\t"); }

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) width += Columns(NextCharacter(text, &at));
  return width;
}

std::string Shorten(std::string_view text, size_t width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  if (width == 0) return "";
  size_t used = 0;
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    const size_t columns = Columns(NextCharacter(text, &next));
    if (used + columns > width - 1) break;
    used += columns;
    at = next;
  }
  return std::string(text.substr(0, at)) + "…";
}

size_t TerminalWidth() {
  winsize size = {};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string FormatTime(int64_t unix_ms) { return TimeText(unix_ms, Millis::kUnlessZero); }

std::string FormatBytes(uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string FormatCount(uint64_t count) {
  std::string out = fmt::format("{}", count);
  for (size_t at = out.size(); at > 3;) out.insert(at -= 3, 1, ',');
  return out;
}

std::string FormatMs(double ms) {
  if (ms >= 1000) return fmt::format("{:.2f} s", ms / 1000);
  return ms >= 10 ? fmt::format("{:.1f} ms", ms) : fmt::format("{:.2f} ms", ms);
}

void Table::Add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = OneLine(cell);
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToString(size_t width) const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(DisplayWidth(column.name));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  size_t before_last = 0;
  for (size_t i = 0; i + 1 < widths.size(); ++i) before_last += widths[i] + 2;
  constexpr size_t kLeastLast = 16;
  if (width > 0 && before_last + widths.back() > width) {
    const size_t room = width > before_last ? width - before_last : 0;
    widths.back() = std::min(widths.back(), std::max(room, kLeastLast));
  }
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string cell = Shorten(cell_of(i), widths[i]);
      const std::string fill(widths[i] - DisplayWidth(cell), ' ');
      line += columns_[i].align == Align::kRight ? fill + cell : cell + fill;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line([&](size_t i) { return std::string_view(columns_[i].name); });
  for (const auto& row : rows_) add_line([&](size_t i) { return std::string_view(row[i]); });
  return out;
}

std::string Listing(const std::vector<std::pair<std::string, std::string>>& items) {
  size_t width = 0;
  for (const auto& [name, value] : items) width = std::max(width, DisplayWidth(name));
  std::string out;
  for (const auto& [name, value] : items) {
    out += name + std::string(width - DisplayWidth(name) + 2, ' ') + OneLine(value) + "\n";
  }
  return out;
}

std::string ToJson(const boost::json::value& value) {
  std::string out;
  AppendJson(value, &out);
  return out;
}

double Rounded(double value) { return std::round(value * 1000) / 1000; }

void Print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void PrintJson(const boost::json::value& value) { Print(ToJson(value) + "\n"); }

void PrintTable(const Table& table) { Print(table.ToString(TerminalWidth())); }

void Say(std::string_view text) { fmt::print(stderr, "inferscale: {}\n", OneLine(text)); }

bool FlushOutput() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

}  // namespace inferscale
