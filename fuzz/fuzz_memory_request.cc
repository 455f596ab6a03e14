// Bodies, queries and paths of the memory routes: understood whole, or an error. The first byte
// chooses what the rest is.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/utf8.h"
#include "server/key_api.h"
#include "server/memory_json.h"

namespace {

constexpr int64_t kNow = 1'717'200'000'000;

void Check(bool holds) {
  if (!holds) std::abort();
}

void Query(std::string_view text) {
  const auto query = inferscale::QueryParams::Parse(text);
  if (!query) return;
  for (const auto& [name, value] : query->all()) {
    Check(inferscale::FindInvalidUtf8(value) == std::string_view::npos);
  }
  const auto scope = inferscale::ParseDeleteScope(*query, "t");
  if (scope) Check(!scope->user.empty() || !scope->agent.empty() || !scope->run.empty());
  const auto where = inferscale::ParseMemoryWhere(*query, "t");
  if (where) Check(where->scope.tenant == "t" && where->scope.user.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0]) {
    case 'a': {
      const auto add = inferscale::ParseMemoryAdd(text, "t", kNow);
      if (!add) break;
      for (const inferscale::Fact& fact : add->messages) {
        Check(fact.scope.tenant == "t" && !fact.text.empty() && fact.when_ms);
      }
      break;
    }
    case 's': {
      const auto search = inferscale::ParseMemorySearch(text, "t");
      // A fact that the filter lets pass is of a user who is looked at.
      if (!search || !search->where.users) break;
      inferscale::Fact fact;
      fact.scope = {"t", "\x01nobody", "", ""};
      if (search->where.filter.Matches(fact)) {
        bool named = false;
        for (const auto& user : *search->where.users) named = named || user == fact.scope.user;
        Check(named);
      }
      break;
    }
    case 'u':
      if (const auto update = inferscale::ParseMemoryUpdate(text); update && update->metadata) {
        Check(inferscale::MergeMetadata("{\"a\":1}", *update->metadata).front() == '{');
      }
      break;
    case 'b':
      (void)inferscale::ParseBatchUpdate(text);
      (void)inferscale::ParseBatchDelete(text);
      break;
    case 'k':
      (void)inferscale::ParseKeySpec(text, "t");
      break;
    case 'q':
      Query(text);
      break;
    default:
      (void)inferscale::PercentDecode(text);
  }
  return 0;
}
