#include "server/key_api.h"

#include <utility>

#include "server/json_members.h"
#include "server/json_route.h"

namespace inferscale {

namespace json = boost::json;

namespace {

constexpr std::string_view kKey = R"({"$ref": "#/components/schemas/Key"})";
constexpr RouteSchemas kCreate = {
    .body = R"({"type": "object", "properties": {"tenant": {"type": "string", "minLength": 1},
      "access": {"enum": ["read", "write", "admin"]}, "name": {"type": "string"},
      "per_minute": {"type": "integer", "minimum": 0, "maximum": 4294967295}}})",
    .answer = kKey};
constexpr RouteSchemas kList = {.answer =
                                    R"({"type": "object", "required": ["keys"], "properties": {
      "keys": {"type": "array", "items": {"$ref": "#/components/schemas/Key"}}}})"};
constexpr RouteSchemas kRevoke = {
    .answer = R"({"type": "object", "properties": {"message": {"type": "string"}}})"};

}  // namespace

json::object KeyToJson(const KeyInfo& info) {
  return {{"id", info.id},
          {"tenant", info.spec.tenant},
          {"access", KeyAccessName(info.spec.access)},
          {"name", info.spec.name},
          {"per_minute", info.spec.per_minute},
          {"created_at", TimeText(info.created_ms)},
          {"revoked_at", info.revoked_ms ? json::value(TimeText(*info.revoked_ms)) : nullptr}};
}

json::object NewKeyToJson(const NewKey& made) {
  json::object out = KeyToJson(made.info);
  out["key"] = made.key;
  return out;
}

Result<KeySpec> ParseKeySpec(std::string_view body, const std::string& tenant) {
  INFERSCALE_ASSIGN(const json::object object, ParseBody(body));
  const Members root(object, "");
  KeySpec spec;
  spec.tenant = tenant;
  INFERSCALE_TRY(root.Text("tenant", spec.tenant));
  INFERSCALE_TRY(root.Text("name", spec.name));
  INFERSCALE_TRY(root.Integer("per_minute", 0, UINT32_MAX, spec.per_minute));
  std::string access(KeyAccessName(spec.access));
  INFERSCALE_TRY(root.Text("access", access));
  INFERSCALE_ASSIGN(spec.access, ParseKeyAccess(access));
  return spec;
}

std::vector<Route> KeyRoutes(KeyStore& keys) {
  const auto create = [&keys](const Call& call) -> Result<json::value> {
    INFERSCALE_ASSIGN(const KeySpec spec, ParseKeySpec(call.request.body, call.caller.tenant));
    INFERSCALE_ASSIGN(const NewKey made, keys.Create(spec));
    return NewKeyToJson(made);
  };
  const auto list = [&keys](const Call&) -> Result<json::value> {
    INFERSCALE_ASSIGN(const std::vector<KeyInfo> infos, keys.List());
    json::array out;
    for (const KeyInfo& info : infos) out.push_back(KeyToJson(info));
    return json::object{{"keys", std::move(out)}};
  };
  const auto revoke = [&keys](const Call& call) -> Result<json::value> {
    INFERSCALE_TRY(keys.Revoke(call.params[0]));
    return json::object{{"message", "the key is revoked"}};
  };
  const auto rotate = [&keys](const Call& call) -> Result<json::value> {
    INFERSCALE_ASSIGN(const NewKey made, keys.Rotate(call.params[0]));
    return NewKeyToJson(made);
  };
  return {
      {"POST", "/v1/keys", Access::kAdmin, "Makes a key, which is told this once", Json(create),
       kCreate},
      {"GET", "/v1/keys", Access::kAdmin, "All keys, without their secrets", Json(list), kList},
      {"DELETE", "/v1/keys/{id}", Access::kAdmin, "Revokes a key", Json(revoke), kRevoke},
      {"POST",
       "/v1/keys/{id}/rotate",
       Access::kAdmin,
       "A new secret for a key",
       Json(rotate),
       {.answer = kKey}},
  };
}

}  // namespace inferscale
