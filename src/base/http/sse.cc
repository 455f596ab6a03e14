#include "base/http/sse.h"

#include <utility>

namespace inferscale {

// A line without its end: LF, CR LF or CR. nullopt until its end is there.
std::optional<std::string_view> SseParser::TakeLine() {
  const size_t end = pending_.find_first_of("\r\n", at_);
  if (end == std::string::npos) return std::nullopt;
  size_t next = end + 1;
  if (pending_[end] == '\r') {
    if (next == pending_.size()) return std::nullopt;  // its LF may still come
    if (pending_[next] == '\n') ++next;
  }
  const auto line = std::string_view(pending_).substr(at_, end - at_);
  at_ = next;
  return line;
}

Result<std::optional<std::string>> SseParser::Next() {
  while (const auto line = TakeLine()) {
    if (line->empty()) {
      if (!std::exchange(has_data_, false)) continue;
      return std::exchange(data_, {});
    }
    const size_t colon = line->find(':');
    if (line->substr(0, colon) != "data") continue;
    std::string_view value;
    if (colon != std::string_view::npos) value = line->substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (std::exchange(has_data_, true)) data_ += '\n';
    data_ += value;
    if (data_.size() > max_bytes_) break;
  }
  pending_.erase(0, std::exchange(at_, 0));
  if (pending_.size() > max_bytes_ || data_.size() > max_bytes_) {
    return Fail(Code::kCorrupt, "an event of more than {} bytes", max_bytes_);
  }
  return std::nullopt;
}

std::string MakeSseEvent(std::string_view data) { return fmt::format("data: {}\n\n", data); }

}  // namespace inferscale
