// Any bytes as a sequence's state, of one cache or two: an error, or rows that lie inside the
// bytes.
#include <cstdlib>

#include "engine/llama/state_blob.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void Check(inferscale::ByteSpan bytes, size_t caches) {
  using namespace inferscale;
  const auto state = ParseStateBlob(bytes, caches);
  if (!state) {
    Require(!state.error().message.empty());
    return;
  }
  Require(state->size() == caches);
  const std::byte* end = bytes.data() + bytes.size();
  for (const StateRows& rows : *state) {
    const size_t count = rows.positions.size();
    Require(rows.k.size() == rows.layers && rows.v.size() == rows.layers);
    Require(!rows.form.transposed_values || rows.v_row_bytes % DtypeSize(rows.dtype) == 0);
    const auto inside = [&](const std::byte* base, size_t row_bytes) {
      Require(base >= bytes.data() && base <= end);
      Require(count * row_bytes <= static_cast<size_t>(end - base));
    };
    for (uint32_t layer = 0; layer < rows.layers; ++layer) {
      inside(rows.k[layer], rows.k_row_bytes);
      inside(rows.v[layer], rows.v_row_bytes);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferscale;
  const ByteSpan bytes = std::as_bytes(std::span(data, size));
  Check(bytes, 1);
  Check(bytes, 2);
  return 0;
}
