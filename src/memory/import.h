// Conversations from files, line by line, as facts that are not stored yet.
#ifndef INFERSCALE_MEMORY_IMPORT_H_
#define INFERSCALE_MEMORY_IMPORT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "memory/fact.h"

namespace inferscale {

// "jsonl": one JSON object a line; `text` (or `content`), and optionally `speaker` (or `role`,
// `name`),
//   `when` (or `date`, `timestamp`; ISO 8601 or Unix seconds), `user`, `agent`, `run`, `metadata`.
//   Or a line {"messages": [...]} with such objects.
// "locomo": LoCoMo's JSON: every sample's sessions and dated turns; user = sample id, run =
// session. "text": one fact a line; "Name: text" and "[date] Name: text" are understood.
// "mem0", "zep", "letta": what these memories export (memory/import_peers.h).
enum class ImportFormat : uint8_t { kAuto, kJsonl, kLocomo, kText, kMem0, kZep, kLetta };
Result<ImportFormat> ParseImportFormat(std::string_view name);

// A bad line or turn: said to `bad` with the place ("line 12: not a JSON object") and skipped.
struct ImportSink {
  std::function<Status(Fact&&)> fact;  // an error stops the import
  std::function<void(const Error&)> bad;
  // What the file has and a fact has no place for, by name: of other memories' only. May be empty.
  std::function<void(std::string_view what, uint64_t count)> dropped{};
};

// Reads `content` (a whole file). Facts inherit what they do not name from `defaults` (scope, ...).
// kInvalid if the content as a whole is not of the format; never throws, whatever the bytes.
Status ParseImport(std::string_view content, ImportFormat format, const Fact& defaults,
                   const ImportSink& sink);

// ISO 8601 ("2024-05-08", "2024-05-08T13:56:00Z", with offset) to Unix ms.
Result<int64_t> ParseTime(std::string_view text);

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_IMPORT_H_
