// Facts that a language model draws from messages: what it is asked, and how its answer is read.
#ifndef INFERSCALE_MEMORY_EXTRACTION_H_
#define INFERSCALE_MEMORY_EXTRACTION_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "memory/fact.h"

namespace inferscale {

// More messages in one prompt, and small models lose the thread.
inline constexpr size_t kMessagesTogether = 16;

// The parts of a prompt, in order (kv/prompt_format.h).
struct ExtractionPrompt {
  std::string system;              // what to do; ends where known facts begin
  std::vector<std::string> known;  // numbered from 1
  std::string question;            // the messages
};
ExtractionPrompt MakeExtractionPrompt(std::span<const Fact> messages, std::span<const Fact> known);

// GBNF of the answer: {"facts": [{"text": "...", "replaces": null}]}, at most kMostExtracted facts,
// each of which may replace one of the known.
inline constexpr size_t kMostExtracted = 16;
std::string ExtractionGrammar(size_t known);

struct ExtractedFact {
  std::string text;
  std::optional<size_t> replaces;  // index of a known fact

  bool operator==(const ExtractedFact&) const = default;
};
// Facts that say the same as an earlier one are left out, and a second fact that would replace the
// same known one is a new one. Of an answer that is not `complete` (cut for its length) the last
// fact may be missing. kInvalid if it is not what the grammar describes; quotes nothing.
Result<std::vector<ExtractedFact>> ParseExtraction(std::string_view answer, size_t known,
                                                   bool complete);

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_EXTRACTION_H_
