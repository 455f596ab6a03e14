// Getting facts in: read, add in batches, encode; each with progress and an end on Ctrl-C.
#ifndef INFERSCALE_CLI_INGEST_H_
#define INFERSCALE_CLI_INGEST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "app/app.h"
#include "base/result.h"
#include "memory/import.h"

namespace inferscale {

// A whole file, or stdin for "-". kNotFound if there is none; kInvalid for a folder.
Result<std::string> ReadInput(const std::string& path);

struct ParsedFacts {
  std::vector<Fact> facts;
  std::vector<Error> skipped;                            // lines that are no fact, with their place
  std::map<std::string, uint64_t, std::less<>> dropped;  // ImportSink
};
Result<ParsedFacts> ParseFacts(std::string_view content, ImportFormat format, const Fact& defaults);

struct Ingested {
  uint64_t seen = 0;  // of the facts given; fewer than all if interrupted
  uint64_t added = 0;
  uint64_t duplicates = 0;
  uint64_t updated = 0;        // by facts that the model drew
  std::vector<Error> refused;  // facts that the store did not take, one each
  double ms = 0;
  bool interrupted = false;
};
// Batches of 64, each durable when it is counted. Facts that were added before are folded, so doing
// it again continues where it stopped.
Result<Ingested> AddFacts(App& app, std::span<const Fact> facts);
// Adds what the model draws from the facts as messages; a conversation at a time, and `seen` counts
// messages. Doing it again reads all of them again.
Result<Ingested> InferFacts(App& app, std::span<const Fact> messages);

// The same for the facts of an export, which keep their ids and are folded by those.
Result<Ingested> RestoreFacts(App& app, std::span<const FactWithHistory> facts);

// Encodes everything pending; for a model that takes no KV that is nothing, which is said to the
// user. `*interrupted` tells whether Ctrl-C ended it early.
Result<EncodeProgress> EncodeAll(App& app, bool* interrupted);
// "240 facts in 40 episodes, 9,120 tokens computed, 4.1 s".
std::string DescribeEncoding(const EncodeProgress& done);

}  // namespace inferscale

#endif  // INFERSCALE_CLI_INGEST_H_
