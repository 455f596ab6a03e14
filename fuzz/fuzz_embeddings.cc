// An embeddings endpoint's answer: whatever it sends, the result is vectors of length 1 or an
// error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "embed/openai_embedder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first byte says how many texts were asked.
  if (size == 0) return 0;
  const size_t count = data[0] % 4;
  const auto vectors =
      inferscale::ParseEmbeddings({reinterpret_cast<const char*>(data + 1), size - 1}, count);
  if (!vectors) return 0;
  if (vectors->size() != count) std::abort();
  for (const auto& vector : *vectors) {
    if (vector.size() != vectors->front().size()) std::abort();
    double squares = 0;
    for (const float value : vector) squares += double{value} * double{value};
    if (!(std::abs(squares - 1) < 1e-3)) std::abort();
  }
  return 0;
}
