#include "server/mcp.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "server/errors.h"
#include "server/json_members.h"
#include "server/keys.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr std::string_view kHandshakeVersions[] = {"2024-11-05", "2025-03-26", "2025-06-18",
                                                   "2025-11-25"};
constexpr std::string_view kStatelessVersion = "2026-07-28";
constexpr std::string_view kVersionKey = "io.modelcontextprotocol/protocolVersion";
constexpr std::string_view kCapabilitiesKey = "io.modelcontextprotocol/clientCapabilities";
constexpr std::string_view kServerKey = "io.modelcontextprotocol/serverInfo";
constexpr int kCacheMs = 300'000;  // for which clients may keep the list of tools

constexpr std::string_view kInstructions =
    "A long-term memory. Search it before answering what may depend on earlier conversations, and "
    "add what is worth knowing later. Memories are kept word for word.";

bool IsHandshakeVersion(std::string_view version) {
  return std::ranges::find(kHandshakeVersions, version) != std::end(kHandshakeVersions);
}

json::object ServerInfo() {
  return {{"name", "inferscale"}, {"title", "InferScale memory"}, {"version", INFERSCALE_VERSION}};
}

json::object Capabilities() { return {{"tools", json::object()}}; }

json::array AllVersions() {
  json::array versions(std::begin(kHandshakeVersions), std::end(kHandshakeVersions));
  versions.emplace_back(kStatelessVersion);
  return versions;
}

json::object Envelope(json::value id) { return {{"jsonrpc", "2.0"}, {"id", std::move(id)}}; }

// Keeps what a memory route answers.
class Kept final : public HttpResponder {
 public:
  using HttpResponder::Send;
  void Send(const HttpAnswer& answer) override { answer_ = answer; }
  bool StartEvents() override { return false; }
  bool SendEvent(std::string_view) override { return false; }
  std::stop_token gone() const override { return {}; }

  const HttpAnswer& answer() const { return answer_; }

 private:
  HttpAnswer answer_;
};

json::object ToolResult(std::string_view text, json::value structured, bool failed) {
  json::object result = {{"content", json::array{{{"type", "text"}, {"text", text}}}},
                         {"isError", failed}};
  if (structured.is_object()) result["structuredContent"] = std::move(structured);
  return result;
}

json::object ToolResult(const HttpAnswer& answer) {
  boost::system::error_code failed;
  json::value body = json::parse(answer.body, failed);
  if (answer.status < 400) return ToolResult(answer.body, std::move(body), false);
  const json::value* detail = body.is_object() ? body.get_object().if_contains("detail") : nullptr;
  const bool told = detail != nullptr && detail->is_string();
  return ToolResult(told ? std::string_view(detail->get_string()) : "it failed", nullptr, true);
}

// A member of the parameters that is an object; an empty one if it is absent.
const json::object* ObjectMember(const json::object& object, std::string_view name) {
  static const json::object kEmpty;
  const json::value* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return &kEmpty;
  return value->if_object();
}

}  // namespace

McpServer::McpServer(std::vector<Route> routes) : routes_(std::move(routes)) {
  for (const McpTool& tool : McpTools()) {
    const auto route = std::ranges::find_if(routes_, [&](const Route& one) {
      return one.method == tool.method && one.path == tool.path;
    });
    if (route == routes_.end()) throw std::logic_error("a tool without its route");
    tools_.push_back({&tool, &*route});
  }
}

McpAnswer McpServer::Answer(const McpMessage& message) const {
  json::value id;  // null until a good one is known
  bool stateless = false;
  const auto refuse = [&](const Refusal& refusal) {
    json::object error = {{"code", static_cast<int>(refusal.code)}, {"message", refusal.message}};
    if (!refusal.data.is_null()) error["data"] = refusal.data;
    json::object out = Envelope(id);
    out["error"] = std::move(error);
    return McpAnswer{json::serialize(out), refusal.code, stateless};
  };
  const Result<json::value> parsed = ParseJson(message.text);
  if (!parsed) return refuse({McpError::kParse, parsed.error().message});
  const json::object* request = parsed->if_object();
  if (request == nullptr) {
    return refuse({McpError::kInvalidRequest, "a message must be one JSON object, no batch"});
  }
  const json::value* known = request->if_contains("id");
  if (known != nullptr && (known->is_string() || known->is_int64() || known->is_uint64())) {
    id = *known;
  }
  const json::value* version = request->if_contains("jsonrpc");
  if (version == nullptr || *version != "2.0") {
    return refuse({McpError::kInvalidRequest, "'jsonrpc' must be \"2.0\""});
  }
  const json::value* method = request->if_contains("method");
  if (method == nullptr && (request->contains("result") || request->contains("error"))) {
    return {};  // an answer, though nothing was asked
  }
  if (method == nullptr || !method->is_string()) {
    return refuse({McpError::kInvalidRequest, "'method' must be a string"});
  }
  if (known == nullptr) return {};  // a notification, of which none means anything here
  if (id.is_null()) {
    return refuse({McpError::kInvalidRequest, "'id' must be a string or a whole number"});
  }
  const json::object* params = ObjectMember(*request, "params");
  if (params == nullptr) return refuse({McpError::kInvalidParams, "'params' must be an object"});
  const auto form = ReadForm(*request, message.headers);
  stateless = form.value_or(message.headers && message.headers->version == kStatelessVersion);
  if (!form) return refuse(form.error());
  Outcome result = Call(method->get_string(), *params, message);
  if (!result) return refuse(result.error());
  if (stateless) {
    (*result)["resultType"] = "complete";
    json::object meta;
    meta[kServerKey] = ServerInfo();
    (*result)["_meta"] = std::move(meta);
  }
  json::object out = Envelope(id);
  out["result"] = *std::move(result);
  return {json::serialize(out), std::nullopt, stateless};
}

tl::expected<bool, McpServer::Refusal> McpServer::ReadForm(
    const json::object& request, const std::optional<McpMessage::Headers>& headers) {
  const json::object* params = ObjectMember(request, "params");
  const json::object* meta = ObjectMember(*params, "_meta");
  if (meta == nullptr) {
    return tl::unexpected(Refusal{McpError::kInvalidParams, "'_meta' must be an object"});
  }
  const json::value* named = meta->if_contains(kVersionKey);
  const std::string_view header = headers ? headers->version : std::string_view();
  if (named == nullptr) {
    if (header.empty() || IsHandshakeVersion(header)) return false;
    if (header == kStatelessVersion) {
      return tl::unexpected(
          Refusal{McpError::kInvalidParams, fmt::format("'_meta' must have {}", kVersionKey)});
    }
    return tl::unexpected(
        Refusal{McpError::kNoVersion, "this protocol version is not supported",
                json::object{{"supported", AllVersions()}, {"requested", header}}});
  }
  if (!named->is_string() || !meta->contains(kCapabilitiesKey)) {
    return tl::unexpected(Refusal{
        McpError::kInvalidParams,
        fmt::format("'_meta' must have {}, a string, and {}", kVersionKey, kCapabilitiesKey)});
  }
  const std::string_view version = named->get_string();
  const std::string_view method = request.at("method").get_string();
  const json::value* name = params->if_contains("name");
  const bool has_name = method == "tools/call" && name != nullptr && name->is_string();
  if (headers && (header != version || headers->method != method ||
                  (has_name && headers->name != std::string_view(name->get_string())))) {
    return tl::unexpected(
        Refusal{McpError::kHeaderMismatch, "the headers and the message say different things"});
  }
  if (version != kStatelessVersion) {
    return tl::unexpected(
        Refusal{McpError::kNoVersion, "this protocol version is not supported",
                json::object{{"supported", AllVersions()}, {"requested", version}}});
  }
  return true;
}

McpServer::Outcome McpServer::Call(std::string_view method, const json::object& params,
                                   const McpMessage& message) const {
  if (method == "initialize") return Initialize(params);
  if (method == "server/discover") {
    return json::object{{"supportedVersions", AllVersions()},
                        {"capabilities", Capabilities()},
                        {"instructions", kInstructions},
                        {"ttlMs", kCacheMs},
                        {"cacheScope", "private"}};
  }
  if (method == "ping") return json::object();
  if (method == "tools/list") return ListTools(params, message.caller);
  if (method == "tools/call") return CallTool(params, message);
  return tl::unexpected(Refusal{McpError::kNoMethod, "there is no such method"});
}

McpServer::Outcome McpServer::Initialize(const json::object& params) {
  const json::value* wanted = params.if_contains("protocolVersion");
  if (wanted == nullptr || !wanted->is_string()) {
    return tl::unexpected(Refusal{McpError::kInvalidParams, "'protocolVersion' must be a string"});
  }
  const std::string_view version = wanted->get_string();
  return json::object{
      {"protocolVersion", IsHandshakeVersion(version)
                              ? version
                              : kHandshakeVersions[std::size(kHandshakeVersions) - 1]},
      {"capabilities", Capabilities()},
      {"serverInfo", ServerInfo()},
      {"instructions", kInstructions}};
}

McpServer::Outcome McpServer::ListTools(const json::object& params, const Caller& caller) const {
  if (params.contains("cursor")) {
    return tl::unexpected(Refusal{McpError::kInvalidParams, "there is one page only"});
  }
  json::array list;
  for (const auto& [tool, route] : tools_) {
    if (route->access > caller.access) continue;
    const bool reads = route->access == Access::kRead;
    list.push_back({{"name", tool->name},
                    {"description", tool->what},
                    {"inputSchema", McpInputSchema(*tool)},
                    {"annotations",
                     {{"readOnlyHint", reads},
                      {"destructiveHint", tool->destroys},
                      {"openWorldHint", false}}}});
  }
  return json::object{{"tools", std::move(list)}, {"ttlMs", kCacheMs}, {"cacheScope", "private"}};
}

McpServer::Outcome McpServer::CallTool(const json::object& params,
                                       const McpMessage& message) const {
  const json::value* name = params.if_contains("name");
  const json::object* arguments = ObjectMember(params, "arguments");
  if (name == nullptr || !name->is_string() || arguments == nullptr) {
    return tl::unexpected(
        Refusal{McpError::kInvalidParams, "'name' must be a string, and 'arguments' an object"});
  }
  const auto found = std::ranges::find_if(tools_, [&](const Tool& one) {
    return one.tool->name == std::string_view(name->get_string());
  });
  if (found == tools_.end()) {
    return tl::unexpected(Refusal{McpError::kInvalidParams, "there is no such tool"});
  }
  const Route& route = *found->route;
  if (route.access > message.caller.access) {
    return ToolResult(fmt::format("this needs a key with access '{}'", KeyAccessName(route.access)),
                      nullptr, /*failed=*/true);
  }
  // What is wrong with the arguments is told to the model, which can do better.
  auto parts = MakeMcpToolRequest(*found->tool, *arguments, message.user);
  if (!parts) return ToolResult(parts.error().message, nullptr, /*failed=*/true);
  HttpRequest request;
  request.method = route.method;
  request.body = std::move(parts->body);
  Kept kept;
  route.handler({request, message.caller, std::move(parts->params), std::move(parts->query)}, kept);
  return ToolResult(kept.answer());
}

namespace {

unsigned StatusOf(const McpAnswer& answer) {
  if (answer.text.empty()) return 202;
  if (!answer.error) return 200;
  switch (*answer.error) {
    // Clients of the older form expect the answer to a request with 200, whatever it says.
    case McpError::kNoMethod:
      return answer.stateless ? 404 : 200;
    case McpError::kInvalidParams:
      return answer.stateless ? 400 : 200;
    case McpError::kParse:
    case McpError::kInvalidRequest:
    case McpError::kHeaderMismatch:
    case McpError::kNoVersion:
      return 400;
  }
  return 400;
}

}  // namespace

Route McpRoute(std::vector<Route> routes) {
  const auto server = std::make_shared<McpServer>(std::move(routes));
  const auto post = [server](const Call& call, HttpResponder& responder) {
    const HttpRequest& request = call.request;
    const McpAnswer answer = server->Answer(
        {request.body, call.caller, call.query.Find("user_id").value_or(""),
         McpMessage::Headers{request.mcp_version, request.mcp_method, request.mcp_name}});
    responder.Send(StatusOf(answer), answer.text);
  };
  return {"POST",
          "/mcp",
          Access::kRead,
          "Model Context Protocol: a message and its answer",
          post,
          {.query = R"({"user_id": {"type": "string"}})",
           .body = R"({"type": "object", "required": ["jsonrpc", "method"], "properties": {
             "jsonrpc": {"const": "2.0"}, "id": {"type": ["string", "integer"]},
             "method": {"enum": ["initialize", "server/discover", "ping", "tools/list",
                                 "tools/call", "notifications/initialized"]},
             "params": {"type": "object"}}})",
           .error = R"({"type": "object", "required": ["error"]})"}};
}

}  // namespace inferscale
