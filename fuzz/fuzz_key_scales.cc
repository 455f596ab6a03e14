// A file of key scales of arbitrary bytes: no crash, and whatever is accepted is usable and is
// written back as the same scales.
#include <cmath>
#include <cstdlib>

#include "kv/key_scales.h"

namespace inferscale {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

// The checksum hides everything behind it from a fuzzer, so it is made right first.
std::vector<std::byte> WithGoodChecksum(ByteSpan file) {
  ByteWriter out;
  out.WriteBytes(file);
  out.Write(Crc32c(file));
  return out.Release();
}

void ReadOne(ByteSpan bytes) {
  const auto scales = ParseKeyScales(bytes);
  if (!scales) {
    Check(scales.error().code == Code::kCorrupt);
    return;
  }
  Check(scales->values.size() == scales->shape.KeyScales());
  for (const float scale : scales->values) Check(std::isfinite(scale) && scale > 0);
  const auto again = ParseKeyScales(EncodeKeyScales(*scales));
  Check(again.has_value() && again->RecordFingerprint() == scales->RecordFingerprint());
}

}  // namespace
}  // namespace inferscale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferscale;
  const ByteSpan bytes = std::as_bytes(std::span(data, size));
  ReadOne(bytes);
  ReadOne(WithGoodChecksum(bytes));
  return 0;
}
