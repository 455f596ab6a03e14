// Filter::Parse and Matches on any bytes: the first line is a fact's metadata, the rest the filter.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "memory/filter.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferscale;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t line = bytes.find('\n');
  Fact fact;
  fact.scope.user = "ana";
  fact.text = "Ana likes tea";
  fact.when_ms = 1'715'126'400'000;
  fact.metadata = bytes.substr(0, line);
  const auto filter =
      Filter::Parse(line == std::string_view::npos ? bytes : bytes.substr(line + 1));
  if (!filter) {
    if (filter.error().code != Code::kInvalid) __builtin_trap();
    return 0;
  }
  const bool matches = filter->Matches(fact);
  if (filter->matches_all() && !matches) __builtin_trap();
  return 0;
}
