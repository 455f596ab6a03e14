// Server-sent events (the WHATWG HTML standard, "Interpreting an event stream"): the data of each.
#ifndef INFERSCALE_BASE_HTTP_SSE_H_
#define INFERSCALE_BASE_HTTP_SSE_H_

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace inferscale {

class SseParser {
 public:
  explicit SseParser(size_t max_event_bytes = size_t{16} << 20) : max_bytes_(max_event_bytes) {}

  // Adds bytes of the stream, cut anywhere.
  void Add(std::string_view bytes) { pending_ += bytes; }
  // The data of the next whole event, its lines joined; nullopt until one is whole. Events without
  // data, comments and other fields give nothing. kCorrupt if an event is too long.
  Result<std::optional<std::string>> Next();

 private:
  std::optional<std::string_view> TakeLine();

  size_t max_bytes_;
  std::string pending_;
  size_t at_ = 0;  // of pending_ that is read
  std::string data_;
  bool has_data_ = false;
};

// `data` as one event.
std::string MakeSseEvent(std::string_view data);

}  // namespace inferscale

#endif  // INFERSCALE_BASE_HTTP_SSE_H_
