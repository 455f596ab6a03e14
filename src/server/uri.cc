#include "server/uri.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"

namespace inferscale {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<std::string> PercentDecode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    const int high = i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
    const int low = high < 0 ? -1 : HexValue(text[i + 2]);
    if (low < 0) return Fail(Code::kInvalid, "the URL has a % without two hexadecimal digits");
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  if (FindInvalidUtf8(out) != std::string::npos) {
    return Fail(Code::kInvalid, "the URL is not UTF-8");
  }
  return out;
}

Result<QueryParams> QueryParams::Parse(std::string_view query) {
  QueryParams params;
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), item.size() + 1));
    if (item.empty()) continue;
    const size_t equals = std::min(item.find('='), item.size());
    std::string name(item.substr(0, equals));
    std::string value(item.substr(std::min(item.size(), equals + 1)));
    std::ranges::replace(name, '+', ' ');
    std::ranges::replace(value, '+', ' ');
    INFERSCALE_ASSIGN(name, PercentDecode(name));
    INFERSCALE_ASSIGN(value, PercentDecode(value));
    // Which one is meant can't be known, and whose facts are deleted may depend on it.
    if (params.Find(name)) return Fail(Code::kInvalid, "a parameter of the URL comes twice");
    params.all_.emplace_back(std::move(name), std::move(value));
  }
  return params;
}

std::optional<std::string> QueryParams::Find(std::string_view name) const {
  const auto found = std::ranges::find(all_, name, [](const auto& item) { return item.first; });
  if (found == all_.end()) return std::nullopt;
  return found->second;
}

Result<size_t> NumberParam(const QueryParams& query, std::string_view name, size_t least,
                           size_t most, size_t otherwise) {
  const auto text = query.Find(name);
  if (!text) return otherwise;
  size_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) {
    return Fail(Code::kInvalid, "'{}' must be a whole number from {} to {}", name, least, most);
  }
  return value;
}

}  // namespace inferscale
