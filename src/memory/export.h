// Facts as lines of JSON, to take them to another store with their ids, times and history. Nothing
// in the file changes or goes unnoticed:
//
//   {"inferscale_export":1}
//   {"id":"0192...","user":"ana", ... ,"history":[...],"crc32c":"0b5e17a4"}     one for each fact
//   {"facts":1,"xxh3":"6c78e0e3bd51d358d01e758642b85fb8"}
//
// A fact's crc32c is of its line up to the comma before it; xxh3 is XXH3-128 of all bytes before
// the last line (`head -n -1 FILE | xxhsum -H2`). Times are Unix ms. The tenant is not named: who
// imports says whose facts they become.
#ifndef INFERSCALE_MEMORY_EXPORT_H_
#define INFERSCALE_MEMORY_EXPORT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "memory/fact_store.h"

namespace inferscale {

// Makes the lines, each with its line break, in this order: Begin, Line for each fact, End.
class ExportWriter {
 public:
  std::string Begin();
  std::string Line(const FactWithHistory& fact);
  std::string End();
  uint64_t facts() const { return facts_; }

 private:
  std::string Hashed(std::string line);

  Hasher hasher_;
  uint64_t facts_ = 0;
};

bool LooksLikeExport(std::string_view content);

// A whole file, verified before a single fact is handed out; their tenant is the default one.
// kCorrupt if it is cut off or a byte of it was changed, and then which line, if one can tell;
// kInvalid for a line that says what no export does; kUnsupported if a newer program wrote it.
// Messages hold no text of the file. Never throws, whatever the bytes.
Result<std::vector<FactWithHistory>> ParseExport(std::string_view content);

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_EXPORT_H_
