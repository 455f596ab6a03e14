// ParseImport on any bytes in every format. Whatever comes out must be fit to be stored.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/utf8.h"
#include "memory/import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferscale;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto format :
       {ImportFormat::kAuto, ImportFormat::kJsonl, ImportFormat::kLocomo, ImportFormat::kText,
        ImportFormat::kMem0, ImportFormat::kZep, ImportFormat::kLetta}) {
    const ImportSink sink{[](Fact&& fact) -> Status {
                            const bool fit =
                                !fact.text.empty() &&
                                FindInvalidUtf8(fact.text) == std::string_view::npos &&
                                FindInvalidUtf8(fact.speaker) == std::string_view::npos &&
                                FindInvalidUtf8(fact.scope.user) == std::string_view::npos &&
                                FindInvalidUtf8(fact.metadata) == std::string_view::npos;
                            const std::string line = RenderFact(fact);
                            if (!fit || line.find('\n') != line.size() - 1) __builtin_trap();
                            (void)NormalizeForDuplicates(fact);
                            return {};
                          },
                          [](const Error& error) {
                            if (FindInvalidUtf8(error.message) != std::string_view::npos)
                              __builtin_trap();
                          },
                          [](std::string_view what, uint64_t count) {
                            if (what.empty() || count == 0) __builtin_trap();
                          }};
    (void)ParseImport(bytes, format, {}, sink);
  }
  return 0;
}
