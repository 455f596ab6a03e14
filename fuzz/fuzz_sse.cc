// A stream of events: however it is cut, it gives the same events.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/http/sse.h"

namespace {

std::vector<std::string> Events(std::string_view stream, size_t step) {
  inferscale::SseParser parser(1 << 16);
  std::vector<std::string> events;
  for (size_t at = 0; at < stream.size(); at += step) {
    parser.Add(stream.substr(at, step));
    while (true) {
      const auto event = parser.Next();
      if (!event) return events;
      if (!*event) break;
      events.push_back(**event);
    }
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > (1 << 15)) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data + 1), size - 1);
  if (stream.empty()) return 0;
  if (Events(stream, 1 + data[0] % 7) != Events(stream, stream.size())) std::abort();
  return 0;
}
