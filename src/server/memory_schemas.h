// What the memory routes take and answer, as JSON Schema: for the OpenAPI document. The parsers
// (server/memory_json.h) decide; what else is in a body is ignored, as Mem0 does.
#ifndef INFERSCALE_SERVER_MEMORY_SCHEMAS_H_
#define INFERSCALE_SERVER_MEMORY_SCHEMAS_H_

#include "server/router.h"

namespace inferscale::memory_schemas {

constexpr std::string_view kWhoQuery = R"({"user_id": {"type": "string"},
  "agent_id": {"type": "string"}, "run_id": {"type": "string"}})";
constexpr std::string_view kMemories = R"({"type": "object", "required": ["results"],
  "properties": {"results": {"type": "array", "items": {"$ref": "#/components/schemas/Memory"}}}})";
constexpr std::string_view kMemory = R"({"$ref": "#/components/schemas/Memory"})";
constexpr std::string_view kErased = R"({"$ref": "#/components/schemas/Erased"})";

constexpr RouteSchemas kAdd = {
    .body = R"({"type": "object", "required": ["messages"], "properties": {
      "messages": {"oneOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1,
        "maxItems": 1000, "items": {"type": "object", "required": ["content"], "properties": {
          "role": {"enum": ["user", "assistant", "system"]}, "name": {"type": "string"},
          "content": {"type": "string", "minLength": 1}}}}]},
      "user_id": {"type": "string"}, "agent_id": {"type": "string"}, "run_id": {"type": "string"},
      "metadata": {"type": "object"}, "timestamp": {"type": ["integer", "string"]},
      "expiration_date": {"type": "string", "format": "date"}, "infer": {"type": "boolean"},
      "async_mode": {"type": "boolean"}},
      "anyOf": [{"required": ["user_id"]}, {"required": ["agent_id"]}, {"required": ["run_id"]}]})",
    .answer = R"({"type": "object", "required": ["results"], "properties": {
      "status": {"type": "string"}, "event_id": {"type": "string"}, "results": {"type": "array", "items": {"type": "object",
        "required": ["id", "memory", "event"], "properties": {"id": {"type": "string"},
          "memory": {"type": "string"}, "actor_id": {"type": "string"},
          "event": {"enum": ["ADD", "UPDATE", "NONE"]}}}}}})"};

constexpr RouteSchemas kEvent = {.answer = R"({"type": "object",
  "required": ["id", "status", "results"], "properties": {"id": {"type": "string"},
    "event_id": {"type": "string"}, "event_type": {"type": "string"},
    "status": {"enum": ["PENDING", "RUNNING", "SUCCEEDED", "FAILED"]},
    "error": {"type": ["string", "null"]}, "created_at": {"type": "string"},
    "started_at": {"type": ["string", "null"]}, "completed_at": {"type": ["string", "null"]},
    "results": {"type": "array", "items": {"type": "object"}}}})"};

constexpr RouteSchemas kSearch = {
    .body = R"({"type": "object", "required": ["query"], "properties": {
      "query": {"type": "string", "minLength": 1}, "filters": {"type": "object"},
      "user_id": {"type": "string"}, "agent_id": {"type": "string"}, "run_id": {"type": "string"},
      "top_k": {"type": "integer", "minimum": 0, "maximum": 1000},
      "threshold": {"type": "number", "minimum": -1, "maximum": 1},
      "explain": {"type": "boolean"}}})",
    .answer = kMemories};

constexpr RouteSchemas kList = {
    .query = R"({"user_id": {"type": "string"}, "agent_id": {"type": "string"},
      "run_id": {"type": "string"}, "top_k": {"type": "integer", "minimum": 0, "maximum": 1000}})",
    .answer = kMemories};

constexpr RouteSchemas kListPage = {
    .query = R"({"page": {"type": "integer", "minimum": 1, "maximum": 1000000},
      "page_size": {"type": "integer", "minimum": 1, "maximum": 1000}})",
    .body = R"({"type": "object", "properties": {"filters": {"type": "object"},
      "user_id": {"type": "string"}, "agent_id": {"type": "string"}, "run_id": {"type": "string"},
      "start_date": {"type": "string", "format": "date"},
      "end_date": {"type": "string", "format": "date"}}})",
    .answer = R"({"type": "object", "required": ["count", "results"], "properties": {
      "count": {"type": "integer"}, "next": {"type": ["string", "null"]},
      "previous": {"type": ["string", "null"]},
      "results": {"type": "array", "items": {"$ref": "#/components/schemas/Memory"}}}})"};

constexpr RouteSchemas kGet = {.answer = kMemory};

constexpr RouteSchemas kUpdate = {.body = R"({"type": "object", "minProperties": 1, "properties": {
      "text": {"type": "string", "minLength": 1}, "metadata": {"type": "object"},
      "timestamp": {"type": ["integer", "string"]},
      "expiration_date": {"type": ["string", "null"], "format": "date"}}})",
                                  .answer = kMemory};

constexpr RouteSchemas kDelete = {.answer = kErased};
constexpr RouteSchemas kDeleteAll = {.query = kWhoQuery, .answer = kErased};

constexpr RouteSchemas kHistory = {.answer = R"({"type": "array", "items": {"type": "object",
      "required": ["memory_id", "event"], "properties": {"id": {"type": "string"},
        "memory_id": {"type": "string"}, "old_memory": {"type": ["string", "null"]},
        "new_memory": {"type": ["string", "null"]}, "event": {"type": "string"},
        "created_at": {"type": "string"}, "is_deleted": {"type": "boolean"}}}})"};

constexpr std::string_view kBatchOfIds = R"({"type": "object", "required": ["memories"],
  "properties": {"memories": {"type": "array", "minItems": 1, "maxItems": 1000,
    "items": {"type": "object", "required": ["memory_id"], "properties": {
      "memory_id": {"type": "string", "minLength": 1}}}}}})";

constexpr RouteSchemas kBatchUpdate = {
    .body = R"({"type": "object", "required": ["memories"], "properties": {"memories":
      {"type": "array", "minItems": 1, "maxItems": 1000, "items": {"type": "object",
        "required": ["memory_id", "text"], "properties": {
          "memory_id": {"type": "string", "minLength": 1},
          "text": {"type": "string", "minLength": 1}, "metadata": {"type": "object"}}}}}})",
    .answer = R"({"type": "object", "properties": {"message": {"type": "string"}}})"};
constexpr RouteSchemas kBatchDelete = {.body = kBatchOfIds, .answer = kErased};

constexpr std::string_view kEntity = R"({"type": "array", "items": {"type": "object",
  "required": ["name", "type", "total_memories"], "properties": {"id": {"type": "string"},
    "name": {"type": "string"}, "type": {"enum": ["user", "agent", "run"]},
    "total_memories": {"type": "integer"}}}})";
constexpr RouteSchemas kEntities = {.answer = kEntity};
constexpr RouteSchemas kEntitiesPage = {
    .answer = R"({"type": "object", "required": ["count", "results"], "properties": {
      "count": {"type": "integer"}, "next": {"type": "null"}, "previous": {"type": "null"},
      "results": {"type": "array", "items": {"type": "object"}}}})"};

}  // namespace inferscale::memory_schemas

#endif  // INFERSCALE_SERVER_MEMORY_SCHEMAS_H_
