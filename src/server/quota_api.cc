#include "server/quota_api.h"

#include <utility>

#include "server/json_members.h"
#include "server/json_route.h"

namespace inferscale {

namespace json = boost::json;

namespace {

constexpr RouteSchemas kPut = {.body = R"({"type": "object", "properties": {
      "facts": {"type": "integer", "minimum": 0}, "kv_bytes": {"type": "integer", "minimum": 0},
      "encode_tokens_per_minute": {"type": "integer", "minimum": 0}}})",
                               .answer = R"({"$ref": "#/components/schemas/Quota"})"};
constexpr RouteSchemas kList = {.answer =
                                    R"({"type": "object", "required": ["quotas"], "properties": {
      "quotas": {"type": "array", "items": {"$ref": "#/components/schemas/Quota"}}}})"};

json::value LimitToJson(uint64_t limit) {
  return limit == 0 ? json::value(nullptr) : json::value(limit);
}

Result<TenantQuota> ParseQuota(std::string_view body) {
  INFERSCALE_ASSIGN(const json::object object, ParseBody(body));
  const Members root(object, "");
  TenantQuota quota;
  INFERSCALE_TRY(root.Integer("facts", 0, INT64_MAX, quota.facts));
  INFERSCALE_TRY(root.Integer("kv_bytes", 0, INT64_MAX, quota.kv_bytes));
  INFERSCALE_TRY(
      root.Integer("encode_tokens_per_minute", 0, INT64_MAX, quota.encode_tokens_per_minute));
  return quota;
}

}  // namespace

json::object QuotaToJson(const TenantUse& use) {
  return {
      {"facts", {{"used", use.facts}, {"limit", LimitToJson(use.quota.facts)}}},
      {"kv_bytes", {{"used", use.kv_bytes}, {"limit", LimitToJson(use.quota.kv_bytes)}}},
      {"encode_tokens_per_minute", {{"limit", LimitToJson(use.quota.encode_tokens_per_minute)}}}};
}

json::object UseToJson(const TenantUse& use) {
  json::object out = QuotaToJson(use);
  out["tenant"] = use.tenant;
  return out;
}

json::array UsesToJson(std::span<const TenantUse> uses) {
  json::array out;
  for (const TenantUse& use : uses) out.push_back(UseToJson(use));
  return out;
}

std::vector<Route> QuotaRoutes(App& app) {
  const auto list = [&app](const Call&) -> Result<json::value> {
    INFERSCALE_ASSIGN(const std::vector<TenantUse> uses, app.UseOfLimited(SIZE_MAX));
    return json::object{{"quotas", UsesToJson(uses)}};
  };
  const auto put = [&app](const Call& call) -> Result<json::value> {
    INFERSCALE_ASSIGN(const TenantQuota quota, ParseQuota(call.request.body));
    INFERSCALE_TRY(app.facts().PutQuota(call.params[0], quota));
    INFERSCALE_ASSIGN(const TenantUse use, app.UseOf(call.params[0]));
    return UseToJson(use);
  };
  return {{"GET", "/v1/quotas", Access::kAdmin, "The tenants that have quotas, and what they use",
           Json(list), kList},
          {"PUT", "/v1/quotas/{tenant}", Access::kAdmin,
           "Says what a tenant may have; what is not named is not limited", Json(put), kPut}};
}

}  // namespace inferscale
