// The JSON of Mem0's memory routes, of its open-source server and of its client (docs/serve.md).
#ifndef INFERSCALE_SERVER_MEMORY_JSON_H_
#define INFERSCALE_SERVER_MEMORY_JSON_H_

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "memory/fact.h"
#include "memory/fact_store.h"
#include "memory/filter.h"
#include "server/uri.h"

namespace inferscale {

// All parsers: kInvalid says what is wrong, without quoting it; kUnsupported what is not offered
// and would change the answer if it were ignored. What else is unknown is ignored, as Mem0 does.

// POST /memories: a fact for every message that is not the system's, said now if it says no time.
struct MemoryAdd {
  std::vector<Fact> messages;
  bool infer = false;  // keep what a model draws from them instead
  bool later = false;  // after the answer
};
Result<MemoryAdd> ParseMemoryAdd(std::string_view body, const std::string& tenant, int64_t now_ms);

// Which facts are meant. The filter decides; the rest says where to look for what it may let pass.
struct MemoryWhere {
  Scope scope;                                    // its user is empty
  std::optional<std::vector<std::string>> users;  // of these only; nullopt: of any and of none
  Filter filter;
};

struct MemorySearch {
  std::string query;
  MemoryWhere where;
  size_t top_k = 20;
  std::optional<float> threshold;  // of the cosine
  bool explain = false;
};
Result<MemorySearch> ParseMemorySearch(std::string_view body, const std::string& tenant);

// The body of POST /v3/memories/.
Result<MemoryWhere> ParseMemoryWhere(std::string_view body, const std::string& tenant);
// user_id, agent_id and run_id of a query.
Result<MemoryWhere> ParseMemoryWhere(const QueryParams& query, const std::string& tenant);

// Whom DELETE /memories names: kInvalid for nobody, for "*", and for any other parameter, which
// would delete more than was meant if it were ignored.
Result<Scope> ParseDeleteScope(const QueryParams& query, const std::string& tenant);

struct MemoryUpdate {
  std::string id;  // in a batch
  FactUpdate update;
  std::optional<boost::json::object> metadata;  // goes into what is there
};
Result<MemoryUpdate> ParseMemoryUpdate(std::string_view body);
// {"memories": [...]}, at most 1000.
Result<std::vector<MemoryUpdate>> ParseBatchUpdate(std::string_view body);
Result<std::vector<std::string>> ParseBatchDelete(std::string_view body);

// The text of metadata with some members replaced; null takes one away.
std::string MergeMetadata(const std::string& metadata, const boost::json::object& changes);

boost::json::object MemoryToJson(const Fact& fact);
boost::json::object HistoryToJson(const HistoryEntry& entry, size_t index);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_MEMORY_JSON_H_
