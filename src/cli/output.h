// What the command writes: tables, JSON, numbers for people. Results go to stdout, everything else
// to stderr.
#ifndef INFERSCALE_CLI_OUTPUT_H_
#define INFERSCALE_CLI_OUTPUT_H_

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace inferscale {

// `text` on one line and safe for a terminal: valid UTF-8, control characters become spaces.
std::string OneLine(std::string_view text);
// As OneLine, but keeps line breaks and tabs.
std::string SafeText(std::string_view text);

// Columns that valid UTF-8 takes on a terminal: wide East Asian characters and emoji take two,
// combining marks none.
size_t DisplayWidth(std::string_view text);
// At most `width` columns; ends in "…" if something was cut off.
std::string Shorten(std::string_view text, size_t width);
// Columns of the terminal behind stdout; 0 if it is not one.
size_t TerminalWidth();

std::string FormatTime(int64_t unix_ms);  // "2024-05-08T13:56:00Z", ISO 8601 in UTC
std::string FormatBytes(uint64_t bytes);  // "4.2 MiB"
std::string FormatCount(uint64_t count);  // "12,345"
std::string FormatMs(double ms);          // "0.42 ms", "38.1 ms", "1.24 s"

enum class Align : uint8_t { kLeft, kRight };

// A table without lines: columns are as wide as their widest cell and two spaces apart. Where that
// is wider than `width` columns (0: no limit) the last column is shortened.
class Table {
 public:
  struct Column {
    std::string name;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Cells go through OneLine; one for each column.
  void Add(std::vector<std::string> cells);
  std::string ToString(size_t width) const;
  bool empty() const { return rows_.empty(); }

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Names and values below each other.
std::string Listing(const std::vector<std::pair<std::string, std::string>>& items);

// JSON on one line; numbers in their shortest form, strings made valid UTF-8.
std::string ToJson(const boost::json::value& value);
// Milliseconds and ratios as JSON: three decimals.
double Rounded(double value);

void Print(std::string_view text);                // to stdout
void PrintJson(const boost::json::value& value);  // to stdout, with a line break
void PrintTable(const Table& table);              // to stdout, as wide as the terminal
void Say(std::string_view text);                  // "inferscale: text" to stderr, one line
bool FlushOutput();                               // false if stdout could not take everything

}  // namespace inferscale

#endif  // INFERSCALE_CLI_OUTPUT_H_
