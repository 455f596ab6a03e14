#include "server/mcp_tools.h"

#include <algorithm>
#include <utility>

namespace inferscale {
namespace {

namespace json = boost::json;
using In = McpArgument::In;

constexpr std::string_view kIds[] = {"user_id", "agent_id", "run_id"};

constexpr std::string_view kUser = R"({"type": "string", "minLength": 1,
  "description": "The user whose memories are meant."})";
constexpr std::string_view kAgent = R"({"type": "string", "minLength": 1,
  "description": "The agent whose memories are meant."})";
constexpr std::string_view kRun = R"({"type": "string", "minLength": 1,
  "description": "The run or session whose memories are meant."})";
constexpr std::string_view kMemoryId = R"({"type": "string", "minLength": 1,
  "description": "The memory's id, as other tools tell it."})";
constexpr std::string_view kMetadata = R"({"type": "object",
  "description": "Any JSON object, kept with the memory; filters can test its members."})";
constexpr std::string_view kExpiry = R"({"type": "string", "pattern": "^\\d{4}-\\d{2}-\\d{2}$",
  "description": "The last day on which the memory is kept, as YYYY-MM-DD."})";
constexpr std::string_view kFilters = R"({"type": "object", "description":
  "Which memories are meant: tests by name, such as {\"user_id\": \"ana\"} or {\"created_at\": {\"gte\": \"2026-01-01\"}}, joined by AND, OR and NOT. Tests are eq, ne, in, nin, gt, gte, lt, lte, contains and icontains; \"*\" is any value."})";

std::vector<McpTool> MakeTools() {
  return {
      {.name = "add_memory",
       .what = "Remembers a fact, a preference or a piece of conversation, word for word unless "
               "'infer'.",
       .method = "POST",
       .path = "/memories",
       .of_user = true,
       .arguments = {{.name = "text",
                      .schema = R"({"type": "string", "minLength": 1,
               "description": "What to remember, as a sentence that can be understood alone."})",
                      .as = "messages"},
                     // The same member of the request, and so in the place of the text.
                     {.name = "messages", .schema = R"({"type": "array", "minItems": 1,
               "items": {"type": "object", "properties": {"role": {"type": "string"},
                         "content": {"type": "string"}, "name": {"type": "string"}},
                         "required": ["role", "content"]},
               "description": "A conversation to remember instead of the text, a memory for each turn."})"},
                     {.name = "user_id", .schema = kUser},
                     {.name = "agent_id", .schema = kAgent},
                     {.name = "run_id", .schema = kRun},
                     {.name = "metadata", .schema = kMetadata},
                     {.name = "expiration_date", .schema = kExpiry},
                     {.name = "infer", .schema = R"({"type": "boolean", "description":
                "Whether a language model draws facts from it instead of keeping it word for word; false if not said."})"}}},
      {.name = "search_memories",
       .what = "Finds the memories nearest to a question or a topic.",
       .method = "POST",
       .path = "/search",
       .of_user = true,
       .arguments = {{.name = "query",
                      .schema = R"({"type": "string", "minLength": 1,
                        "description": "What to look for, in plain words."})",
                      .required = true},
                     {.name = "filters", .schema = kFilters},
                     {.name = "limit", .schema = R"({"type": "integer", "minimum": 1,
                        "maximum": 1000, "description": "At most so many; 20 if not said."})"},
                     {.name = "threshold", .schema = R"({"type": "number", "minimum": -1,
                        "maximum": 1, "description": "The least score."})"},
                     {.name = "user_id", .schema = kUser},
                     {.name = "agent_id", .schema = kAgent},
                     {.name = "run_id", .schema = kRun}}},
      {.name = "get_memories",
       .what = "Lists memories, newest first, a page at a time.",
       .method = "POST",
       .path = "/v3/memories",
       .of_user = true,
       .arguments = {{.name = "filters", .schema = kFilters},
                     {.name = "page",
                      .schema = R"({"type": "integer", "minimum": 1, "maximum": 1000000,
                        "description": "Which page; the first is 1."})",
                      .in = In::kQuery},
                     {.name = "page_size",
                      .schema = R"({"type": "integer", "minimum": 1, "maximum": 1000,
                        "description": "Memories on a page; 100 if not said."})",
                      .in = In::kQuery},
                     {.name = "user_id", .schema = kUser},
                     {.name = "agent_id", .schema = kAgent},
                     {.name = "run_id", .schema = kRun}}},
      {.name = "get_memory",
       .what = "Reads one memory by its id.",
       .method = "GET",
       .path = "/memories/{id}",
       .arguments =
           {{.name = "memory_id", .schema = kMemoryId, .in = In::kPath, .required = true}}},
      {.name = "update_memory",
       .what = "Changes a memory: its text is replaced, metadata goes into what is there.",
       .method = "PUT",
       .path = "/memories/{id}",
       .arguments = {{.name = "memory_id", .schema = kMemoryId, .in = In::kPath, .required = true},
                     {.name = "text",
                      .schema = R"({"type": "string", "minLength": 1,
                        "description": "The new text."})",
                      .required = true},
                     {.name = "metadata", .schema = kMetadata},
                     {.name = "expiration_date", .schema = kExpiry}}},
      {.name = "delete_memory",
       .what = "Deletes one memory for good. Ask the user first.",
       .method = "DELETE",
       .path = "/memories/{id}",
       .destroys = true,
       .arguments =
           {{.name = "memory_id", .schema = kMemoryId, .in = In::kPath, .required = true}}},
      {.name = "delete_all_memories",
       .what =
           "Deletes all memories of a user, agent or run for good; of several, those that belong "
           "to all of them. Ask the user first.",
       .method = "DELETE",
       .path = "/memories",
       .destroys = true,
       .of_user = true,
       .arguments = {{.name = "user_id", .schema = kUser, .in = In::kQuery},
                     {.name = "agent_id", .schema = kAgent, .in = In::kQuery},
                     {.name = "run_id", .schema = kRun, .in = In::kQuery}}},
      {.name = "delete_entities",
       .what =
           "Deletes a user, agent or run with all of its memories for good. Ask the user first.",
       .method = "DELETE",
       .path = "/memories",
       .destroys = true,
       .arguments = {{.name = "user_id", .schema = kUser, .in = In::kQuery},
                     {.name = "agent_id", .schema = kAgent, .in = In::kQuery},
                     {.name = "run_id", .schema = kRun, .in = In::kQuery}}},
      {.name = "list_entities",
       .what = "Lists the users, agents and runs that have memories.",
       .method = "GET",
       .path = "/v1/entities"},
  };
}

bool Fits(const json::value& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_int64();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_bool();
  if (type == "object") return value.is_object();
  return value.is_array();
}

bool IsId(std::string_view name) { return std::ranges::find(kIds, name) != std::end(kIds); }

// Whether a filter tests whose memories they are.
bool NamesAnyone(const json::value& filter) {
  if (const json::array* list = filter.if_array()) return std::ranges::any_of(*list, NamesAnyone);
  const json::object* object = filter.if_object();
  return object != nullptr && std::ranges::any_of(*object, [](const auto& item) {
           return IsId(item.key()) || NamesAnyone(item.value());
         });
}

bool NamesAnyone(const json::object& arguments) {
  const json::value* filters = arguments.if_contains("filters");
  return (filters != nullptr && NamesAnyone(*filters)) ||
         std::ranges::any_of(arguments, [](const auto& item) { return IsId(item.key()); });
}

std::string AsText(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : json::serialize(value);
}

Status CheckNames(const McpTool& tool, const json::object& arguments) {
  for (const auto& [name, value] : arguments) {
    const bool known = std::ranges::any_of(
        tool.arguments, [&, key = std::string_view(name)](const McpArgument& argument) {
          return argument.name == key;
        });
    if (!known)
      return Fail(Code::kInvalid, "{} has no such argument as one that was given", tool.name);
  }
  return {};
}

}  // namespace

const std::vector<McpTool>& McpTools() {
  static const std::vector<McpTool> kTools = MakeTools();
  return kTools;
}

json::object McpInputSchema(const McpTool& tool) {
  json::object properties;
  json::array required;
  for (const McpArgument& argument : tool.arguments) {
    properties[argument.name] = json::parse(argument.schema);
    if (argument.required) required.emplace_back(argument.name);
  }
  json::object schema = {
      {"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

Result<McpToolRequest> MakeMcpToolRequest(const McpTool& tool, json::object arguments,
                                          const std::string& user) {
  // Models send null for what they leave out.
  for (auto item = arguments.begin(); item != arguments.end();) {
    item = item->value().is_null() ? arguments.erase(item) : std::next(item);
  }
  INFERSCALE_TRY(CheckNames(tool, arguments));
  if (tool.of_user && !user.empty() && !NamesAnyone(arguments)) arguments["user_id"] = user;
  McpToolRequest request;
  json::object body;
  std::vector<std::pair<std::string, std::string>> query;
  for (const McpArgument& argument : tool.arguments) {
    json::value* value = arguments.if_contains(argument.name);
    if (value == nullptr) {
      if (!argument.required) continue;
      return Fail(Code::kInvalid, "{} needs '{}'", tool.name, argument.name);
    }
    const json::value schema = json::parse(argument.schema);
    const std::string_view type = schema.at("type").get_string();
    if (!Fits(*value, type)) {
      return Fail(Code::kInvalid, "'{}' must be of type {}", argument.name, type);
    }
    switch (argument.in) {
      case In::kBody:
        body[argument.as.empty() ? argument.name : argument.as] = std::move(*value);
        break;
      case In::kQuery:
        query.emplace_back(argument.name, AsText(*value));
        break;
      case In::kPath:
        request.params.push_back(AsText(*value));
        break;
    }
  }
  request.query = QueryParams(std::move(query));
  request.body = json::serialize(body);
  return request;
}

}  // namespace inferscale
