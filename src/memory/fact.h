// What is remembered.
#ifndef INFERSCALE_MEMORY_FACT_H_
#define INFERSCALE_MEMORY_FACT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace inferscale {

// Whom a fact belongs to. In a fact an empty field means "none"; in a query it means "any", but for
// `tenant`, which is always meant.
struct Scope {
  std::string tenant = "default";
  std::string user;
  std::string agent;
  std::string run;  // a conversation

  bool operator==(const Scope&) const = default;
};

// A remembered piece of text. A turn of a conversation is a fact with a speaker and a date.
struct Fact {
  std::string id;  // UUID; made by the store
  Scope scope;
  std::string text;
  std::string speaker;             // may be empty
  std::optional<int64_t> when_ms;  // when it happened or was said, Unix ms UTC
  std::string metadata = "{}";     // a JSON object
  uint32_t version = 1;            // +1 at every update of what is remembered
  int64_t created_ms = 0;
  int64_t updated_ms = 0;
  std::optional<int64_t> expires_ms;

  int64_t row = 0;      // the store's number, rising in the order of insertion, never used twice
  int64_t episode = 0;  // the episode it stands in
};

// The line that the model reads: "[8 May 2023] Ana: text\n", without what the fact has not. Line
// breaks inside the text become spaces, so that a fact can't pose as several.
std::string RenderFact(const Fact& fact);

// Names a (tenant, user) without telling who it is.
Hash128 OwnerHash(const std::string& tenant, const std::string& user);

// "8 May 2023" from Unix ms, UTC.
std::string RenderDate(int64_t unix_ms);

// What two facts share if they say the same: case, punctuation and spacing do not count, speaker
// and day do. For folding duplicates.
std::string NormalizeForDuplicates(const Fact& fact);

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_FACT_H_
