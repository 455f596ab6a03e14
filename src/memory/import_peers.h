// What other memories keep, as they export it or answer with it.
//
// Mem0: {"results": [...]} of get_all, search or an export, or only the list.
// Zep: messages of threads, and facts, which are the edges of its graph; lists of either, alone or
//   under their names, also of several threads. A fact is dated when it became true; one that has
//   stopped being true expires then.
// Letta: an agent file (.af) of either version, or lists of passages or blocks. Of a block every
//   line is a fact; of messages those are kept that the user and the agent said to each other.
//
// Facts are handed out by their time, those without one first. Ids become metadata.
#ifndef INFERSCALE_MEMORY_IMPORT_PEERS_H_
#define INFERSCALE_MEMORY_IMPORT_PEERS_H_

#include <string_view>

#include "memory/import.h"

namespace inferscale {

// As ParseImport, for these formats.
Status ParseMem0(std::string_view content, const Fact& defaults, const ImportSink& sink);
Status ParseZep(std::string_view content, const Fact& defaults, const ImportSink& sink);
Status ParseLetta(std::string_view content, const Fact& defaults, const ImportSink& sink);

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_IMPORT_PEERS_H_
