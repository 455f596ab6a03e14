#include "server/audit_api.h"

#include <optional>
#include <utility>

#include "server/json_route.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr size_t kDefaultAnswers = 100;
constexpr size_t kMostAnswers = 1000;

constexpr RouteSchemas kSchemas = {
    .query = R"({"limit": {"type": "integer", "minimum": 1, "maximum": 1000},
      "before": {"type": "integer", "minimum": 0}, "tenant": {"type": "string"}})",
    .answer = R"({"type": "object", "required": ["answers"], "properties": {
      "answers": {"type": "array", "items": {"type": "object", "properties": {
        "number": {"type": "integer"}, "at": {"type": "string"}, "id": {"type": "string"},
        "request": {"type": "string"},
        "tenant": {"type": "string"}, "user": {"type": "string"}, "agent": {"type": "string"},
        "run": {"type": "string"}, "mode": {"type": "string"},
        "injected_tokens": {"type": "integer"}, "held_tokens": {"type": "integer"},
        "computed_tokens": {"type": "integer"},
        "injected": {"type": "array", "items": {"type": "string"}},
        "computed": {"type": "array", "items": {"type": "string"}}}}}}})"};

json::object RecordToJson(const AuditRecord& record) {
  const auto ids = [](const std::vector<std::string>& all) {
    return json::array(all.begin(), all.end());
  };
  return {{"number", record.number},
          {"at", TimeText(record.at_ms)},
          {"id", record.answer},
          {"request", record.request},
          {"tenant", record.scope.tenant},
          {"user", record.scope.user},
          {"agent", record.scope.agent},
          {"run", record.scope.run},
          {"mode", record.mode},
          {"injected_tokens", record.injected_tokens},
          {"held_tokens", record.held_tokens},
          {"computed_tokens", record.computed_tokens},
          {"injected", ids(record.injected)},
          {"computed", ids(record.computed)}};
}

Result<json::value> Read(AuditLog& log, const Call& call) {
  INFERSCALE_ASSIGN(const size_t limit,
                    NumberParam(call.query, "limit", 1, kMostAnswers, kDefaultAnswers));
  INFERSCALE_ASSIGN(const size_t before, NumberParam(call.query, "before", 0, INT64_MAX, 0));
  INFERSCALE_ASSIGN(const std::vector<AuditRecord> records,
                    log.Last(limit, static_cast<int64_t>(before), call.query.Find("tenant")));
  json::array out;
  for (const AuditRecord& record : records) out.push_back(RecordToJson(record));
  return json::object{{"answers", std::move(out)}};
}

}  // namespace

Route AuditRoute(AuditLog& log) {
  return {"GET",
          "/v1/audit",
          Access::kAdmin,
          "What was put into answers, the newest first",
          Json([&log](const Call& call) { return Read(log, call); }),
          kSchemas,
          /*quiet=*/true};
}

}  // namespace inferscale
