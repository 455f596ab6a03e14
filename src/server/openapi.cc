#include "server/openapi.h"

#include <cctype>
#include <string>
#include <utility>

#include "server/keys.h"

namespace inferscale {
namespace {

namespace json = boost::json;

// What schemas of routes refer to.
constexpr std::string_view kSchemas = R"({
  "Error": {"type": "object", "required": ["error", "detail"], "properties": {
    "detail": {"type": "string"},
    "error": {"type": "object", "required": ["message", "type"], "properties": {
      "message": {"type": "string"}, "type": {"type": "string"},
      "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}}}},
  "Memory": {"type": "object", "required": ["id", "memory", "metadata", "created_at", "version"],
    "properties": {
      "id": {"type": "string"}, "memory": {"type": "string"}, "hash": {"type": "string"},
      "user_id": {"type": ["string", "null"]}, "agent_id": {"type": ["string", "null"]},
      "run_id": {"type": ["string", "null"]}, "actor_id": {"type": ["string", "null"]},
      "metadata": {"type": "object"}, "said_at": {"type": ["string", "null"]},
      "expiration_date": {"type": ["string", "null"]}, "created_at": {"type": "string"},
      "updated_at": {"type": "string"}, "version": {"type": "integer"},
      "score": {"type": "number"}}},
  "Erased": {"type": "object", "required": ["message", "erased"], "properties": {
    "message": {"type": "string"},
    "erased": {"type": "object", "properties": {
      "text": {"type": "integer"}, "vector": {"type": "integer"}, "history": {"type": "integer"},
      "kv_records": {"type": "integer"}, "kv_pending": {"type": "boolean"}}}}},
  "Quota": {"type": "object", "required": ["tenant", "facts", "kv_bytes",
      "encode_tokens_per_minute"], "properties": {
    "tenant": {"type": "string"},
    "facts": {"type": "object", "properties": {
      "used": {"type": "integer"}, "limit": {"type": ["integer", "null"]}}},
    "kv_bytes": {"type": "object", "properties": {
      "used": {"type": "integer"}, "limit": {"type": ["integer", "null"]}}},
    "encode_tokens_per_minute": {"type": "object", "properties": {
      "limit": {"type": ["integer", "null"]}}}}},
  "Key": {"type": "object", "required": ["id", "tenant", "access"], "properties": {
    "id": {"type": "string"}, "tenant": {"type": "string"},
    "access": {"enum": ["read", "write", "admin"]}, "name": {"type": "string"},
    "per_minute": {"type": "integer"}, "created_at": {"type": "string"},
    "revoked_at": {"type": ["string", "null"]}, "key": {"type": "string"}}}
})";

json::object Content(std::string_view schema) {
  return {
      {"application/json", {{"schema", schema.empty() ? json::object() : json::parse(schema)}}}};
}

// Of the path, all of them texts, and of the URL's query.
json::array Parameters(const Route& route) {
  json::array out;
  for (size_t at = route.path.find('{'); at != std::string::npos;
       at = route.path.find('{', at + 1)) {
    out.push_back({{"name", route.path.substr(at + 1, route.path.find('}', at) - at - 1)},
                   {"in", "path"},
                   {"required", true},
                   {"schema", {{"type", "string"}, {"minLength", 1}}}});
  }
  if (route.schemas.query.empty()) return out;
  const json::value query = json::parse(route.schemas.query);
  for (const auto& [name, schema] : query.get_object()) {
    out.push_back({{"name", name}, {"in", "query"}, {"required", false}, {"schema", schema}});
  }
  return out;
}

json::object Responses(const Route& route) {
  json::object good = {{"description", "Done"}};
  if (!route.schemas.answer.empty()) good["content"] = Content(route.schemas.answer);
  json::object responses;
  responses["200"] = std::move(good);
  const auto refuses = [&](std::string_view status, std::string_view what,
                           std::string_view schema = RouteSchemas{}.error) {
    responses[status] = json::object{{"description", what}, {"content", Content(schema)}};
  };
  refuses("400", "The request is wrong", route.schemas.error);
  if (route.access != Access::kOpen) {
    refuses("401", "No key, or one that is not known");
    refuses("403", "The key may not do this, or the tenant has no room (code facts_quota)");
    refuses("429", "Too many requests; Retry-After says when");
  }
  refuses("404", "There is no such thing", route.schemas.error);
  refuses("415", "The body is not application/json");
  refuses("503", "It can't be answered now");
  return responses;
}

// "POST /v1/keys/{id}/rotate" as "post_v1_keys_id_rotate".
std::string OperationId(const Route& route) {
  std::string id;
  for (const char c : route.method + route.path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      id += static_cast<char>(std::tolower(byte));
    } else if (!id.empty() && id.back() != '_' && c != '}') {
      id += '_';
    }
  }
  return id;
}

json::object Operation(const Route& route) {
  json::object operation = {{"operationId", OperationId(route)}, {"summary", route.what}};
  if (route.access == Access::kOpen) {
    operation["security"] = json::array();
  } else {
    operation["description"] =
        fmt::format("Needs a key with access '{}'.", KeyAccessName(route.access));
  }
  if (json::array parameters = Parameters(route); !parameters.empty()) {
    operation["parameters"] = std::move(parameters);
  }
  if (!route.schemas.body.empty()) {
    operation["requestBody"] = {{"required", true}, {"content", Content(route.schemas.body)}};
  } else if (route.method == "POST" || route.method == "PUT") {
    operation["requestBody"] = {{"content", Content("")}};
  }
  operation["responses"] = Responses(route);
  return operation;
}

}  // namespace

json::object OpenApiDocument(std::span<const Route> routes) {
  json::object paths;
  for (const Route& route : routes) {
    if (!route.offered) continue;
    std::string method = route.method;
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    json::value& path = paths[route.path];
    if (path.is_null()) path.emplace_object();
    path.get_object()[method] = Operation(route);
  }
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "InferScale"},
            {"version", INFERSCALE_VERSION},
            {"description",
             "Answers from memory, as OpenAI's API has them, and memories as "
             "Mem0's. A slash at the end of a path counts for nothing."}}},
          {"security", json::array{{{"bearer", json::array()}}, {{"key", json::array()}}}},
          {"paths", std::move(paths)},
          {"components",
           {{"securitySchemes",
             {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
              {"key", {{"type", "apiKey"}, {"in", "header"}, {"name", "X-API-Key"}}}}},
            {"schemas", json::parse(kSchemas)}}}};
}

}  // namespace inferscale
