// A message of the Model Context Protocol: answered once in JSON-RPC's form or not at all, and a
// tool's call is a request that its route can read.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/mcp.h"

namespace {

namespace json = boost::json;

void Check(bool holds) {
  if (!holds) std::abort();
}

// In the place of the memory routes.
std::vector<inferscale::Route> Routes() {
  std::vector<inferscale::Route> routes;
  for (const inferscale::McpTool& tool : inferscale::McpTools()) {
    const size_t names = tool.path.find('{') == std::string_view::npos ? 0 : 1;
    const auto handler = [names](const inferscale::Call& call,
                                 inferscale::HttpResponder& responder) {
      Check(call.params.size() == names && call.caller.tenant == "t");
      Check(json::parse(call.request.body).is_object());
      responder.Send(200, call.request.body);
    };
    routes.push_back({std::string(tool.method), std::string(tool.path),
                      tool.destroys ? inferscale::Access::kAdmin : inferscale::Access::kRead, "",
                      handler});
  }
  return routes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const inferscale::McpServer server(Routes());
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const inferscale::Caller caller{"t", inferscale::Access::kWrite, {}};
  inferscale::McpMessage message{text, caller, "ana"};
  if (data[0] == 'h') message.headers = {"2026-07-28", "tools/call", "add_memory"};
  const inferscale::McpAnswer answer = server.Answer(message);
  Check(!(answer.error && answer.text.empty()));
  if (answer.text.empty()) return 0;
  Check(answer.text.find('\n') == std::string::npos);
  const json::value parsed = json::parse(answer.text);
  Check(parsed.at("jsonrpc") == "2.0" && parsed.as_object().contains("id"));
  Check(parsed.as_object().contains("error") == answer.error.has_value());
  Check(parsed.as_object().contains("result") != answer.error.has_value());
  return 0;
}
