// A JSON schema of a request: a grammar of bounded size, or an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/schema_grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto grammar = inferscale::SchemaGrammar({reinterpret_cast<const char*>(data), size});
  if (grammar && (!grammar->starts_with("root ::= ") || grammar->size() > (1 << 20))) std::abort();
  return 0;
}
