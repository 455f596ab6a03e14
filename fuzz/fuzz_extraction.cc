// What a model answers when it is asked for facts: facts, or an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "memory/extraction.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t known = data[0] & 7;
  const bool complete = (data[0] & 8) != 0;
  const std::string_view answer(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto facts = inferscale::ParseExtraction(answer, known, complete);
  if (!facts) return 0;
  for (const inferscale::ExtractedFact& fact : *facts) {
    if (fact.text.empty() || (fact.replaces && *fact.replaces >= known)) std::abort();
  }
  return 0;
}
