// ParseExport on any bytes, as they are and with right checksums around them. What comes out must
// be fit to be stored, and come out the same from an export of it.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "memory/export.h"

namespace {

using namespace inferscale;

void Read(std::string_view content) {
  const auto facts = ParseExport(content);
  if (!facts) {
    if (FindInvalidUtf8(facts.error().message) != std::string_view::npos) __builtin_trap();
    return;
  }
  ExportWriter writer;
  std::string again = writer.Begin();
  for (const FactWithHistory& fact : *facts) {
    if (fact.fact.id.empty() || FindInvalidUtf8(fact.fact.text) != std::string_view::npos) {
      __builtin_trap();
    }
    again += writer.Line(fact);
  }
  again += writer.End();
  const auto same = ParseExport(again);
  if (!same || same->size() != facts->size()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Read(bytes);
  const std::string body = fmt::format("{{\"inferscale_export\":1}}\n{}\n", bytes);
  const auto lines = std::count(body.begin(), body.end(), '\n') - 1;
  Read(fmt::format("{}{{\"facts\":{},\"xxh3\":\"{}\"}}\n", body, lines,
                   HashBytes(AsBytes(body)).Hex()));
  return 0;
}
