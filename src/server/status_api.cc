#include "server/status_api.h"

#include <optional>
#include <utility>

#include "server/json_route.h"
#include "server/quota_api.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr size_t kDefaultRequests = 100;
constexpr size_t kMostRequests = 1000;

json::value TextOrNull(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

json::array Ids(const std::vector<std::string>& ids) { return json::array(ids.begin(), ids.end()); }

json::object AnswerToJson(const AnswerRecord& answer) {
  const GenerateStats& stats = answer.stats;
  return {{"mode", MemoryModeName(answer.mode)},
          {"first_token_ms",
           answer.first_token_ms > 0 ? json::value(answer.first_token_ms) : json::value(nullptr)},
          {"prompt_tokens", stats.prompt_tokens},
          {"injected_tokens", stats.injected_tokens},
          {"cached_tokens", stats.cached_tokens},
          {"prefilled_tokens", stats.prefilled_tokens},
          {"generated_tokens", stats.generated_tokens},
          {"injected", Ids(answer.injected)},
          {"prefilled", Ids(answer.prefilled)}};
}

json::object RequestToJson(const RequestRecord& record) {
  return {{"number", record.number},
          {"id", record.id},
          {"at", TimeText(record.at_ms)},
          {"method", TextOrNull(record.method)},
          {"route", TextOrNull(record.route)},
          {"tenant", TextOrNull(record.tenant)},
          {"key_id", TextOrNull(record.key_id)},
          {"status", record.status},
          {"ms", record.ms},
          {"answer", record.answer ? json::value(AnswerToJson(*record.answer)) : nullptr}};
}

json::array TiersToJson(const KvStoreStats& kv, uint64_t disk_budget) {
  return {{{"tier", "memory"},
           {"bytes", kv.arena_bytes},
           {"budget", kv.arena_budget},
           {"pinned_bytes", kv.pinned_bytes}},
          {{"tier", "disk"},
           {"bytes", kv.disk_bytes},
           {"budget", disk_budget > 0 ? json::value(disk_budget) : json::value(nullptr)}}};
}

json::object LookupsToJson(const KvStoreStats& kv) {
  return {{"memory_hits", kv.arena_hits}, {"disk_reads", kv.disk_reads},
          {"misses", kv.misses},          {"evictions", kv.evictions},
          {"records", kv.records},        {"corrupt", kv.corrupt_records}};
}

class StatusApi {
 public:
  StatusApi(App& app, const RequestLog& log, std::string model)
      : app_(app), log_(log), model_(std::move(model)) {}

  Result<json::value> Stats(const Call& call) const {
    const ModelInfo& info = app_.engine().info();
    json::object out = {
        {"model",
         {{"id", model_},
          {"description", info.description},
          {"engine", info.engine_version},
          {"context_tokens", info.context_tokens},
          {"injection", info.injection},
          {"self_test", {{"passed", info.self_test.passed}, {"summary", info.self_test.summary}}},
          {"quality", QualityToJson(app_)}}}};
    const Scope scope{call.caller.tenant, {}, {}, {}};
    INFERSCALE_ASSIGN(const size_t facts, app_.facts().Count({.scope = scope}));
    INFERSCALE_ASSIGN(const auto users, app_.facts().Users(scope));
    out["tenant"] = {
        {"name", scope.tenant}, {"facts", facts}, {"users", users.size()}, {"quota", nullptr}};
    INFERSCALE_ASSIGN(const TenantQuota quota, app_.facts().GetQuota(scope.tenant));
    if (quota != TenantQuota{}) {
      INFERSCALE_ASSIGN(const TenantUse use, app_.UseOf(scope.tenant));
      out["tenant"].get_object()["quota"] = QuotaToJson(use);
    }
    if (call.caller.SeesAll()) {
      INFERSCALE_ASSIGN(out["machine"], Machine());
    }
    return out;
  }

  Result<json::value> Requests(const Call& call) const {
    INFERSCALE_ASSIGN(const size_t limit,
                      NumberParam(call.query, "limit", 1, kMostRequests, kDefaultRequests));
    INFERSCALE_ASSIGN(const size_t after, NumberParam(call.query, "after", 0, INT64_MAX, 0));
    std::optional<std::string> tenant;
    if (!call.caller.SeesAll()) tenant = call.caller.tenant;
    const uint64_t newest = log_.newest();  // before they are read: what comes now is newer
    json::array out;
    for (const RequestRecord& record : log_.Last(limit, after, tenant)) {
      out.push_back(RequestToJson(record));
    }
    return json::object{{"newest", newest}, {"requests", std::move(out)}};
  }

 private:
  // Of all tenants.
  Result<json::value> Machine() const {
    INFERSCALE_ASSIGN(const AppStats stats, app_.Stats());
    INFERSCALE_ASSIGN(const uint64_t pending, app_.PendingEpisodes());
    json::object out = {{"facts", stats.facts.facts},
                        {"users", stats.facts.users},
                        {"episodes", stats.facts.episodes},
                        {"episodes_pending", pending},
                        {"memory_file_bytes", stats.facts.file_bytes},
                        {"stale_kv", stats.stale_kv}};
    if (stats.kv) {
      out["tiers"] = TiersToJson(*stats.kv, app_.options().disk_bytes);
      out["lookups"] = LookupsToJson(*stats.kv);
    }
    return out;
  }

  App& app_;
  const RequestLog& log_;
  const std::string model_;
};

}  // namespace

json::value QualityToJson(App& app) {
  const auto verdict = app.Verdict();
  if (!verdict || !*verdict) return nullptr;
  const GateVerdict& measured = **verdict;
  const auto maybe = [](const std::optional<double>& value) {
    return value ? json::value(*value) : json::value(nullptr);
  };
  return {{"passed", measured.passed},
          {"kl", maybe(measured.kl)},
          {"noise_kl", maybe(measured.noise_kl)},
          {"least_facts", measured.least_facts},
          {"agreement", measured.agreement},
          {"noise_agreement", measured.noise_agreement}};
}

std::vector<Route> StatusRoutes(App& app, const RequestLog& log, std::string model) {
  const auto api = std::make_shared<StatusApi>(app, log, std::move(model));
  return {{"GET",
           "/v1/stats",
           Access::kRead,
           "The model, what is kept, and how it is found",
           Json([api](const Call& call) { return api->Stats(call); }),
           {},
           /*quiet=*/true},
          {"GET",
           "/v1/requests",
           Access::kRead,
           "The last requests, newest first",
           Json([api](const Call& call) { return api->Requests(call); }),
           {},
           /*quiet=*/true}};
}

}  // namespace inferscale
