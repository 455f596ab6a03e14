// The tools of the MCP server: named as Mem0's and with the same arguments, each a request to one
// of the memory routes.
#ifndef INFERSCALE_SERVER_MCP_TOOLS_H_
#define INFERSCALE_SERVER_MCP_TOOLS_H_

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/uri.h"

namespace inferscale {

struct McpArgument {
  enum class In : uint8_t { kBody, kQuery, kPath };

  std::string_view name;
  std::string_view schema;  // JSON Schema, with the "type" that is checked
  In in = In::kBody;
  bool required = false;
  std::string_view as{};  // its name in the request, if that is another
};

struct McpTool {
  std::string_view name;
  std::string_view what;
  std::string_view method;  // and path: of the route
  std::string_view path;
  bool destroys = false;  // what it takes away can't be had again
  bool of_user = false;   // it is the client's own user who is meant if the arguments name nobody
  std::vector<McpArgument> arguments{};
};

const std::vector<McpTool>& McpTools();

boost::json::object McpInputSchema(const McpTool& tool);

// The parts of the request that a call makes.
struct McpToolRequest {
  std::vector<std::string> params;  // of the path
  QueryParams query;
  std::string body;
};
// `user` is the client's own; it may be empty. kInvalid for an argument that the tool does not
// have, which could mean less than what would be done without it; for one that is missing or of
// another type. A null counts as absent.
Result<McpToolRequest> MakeMcpToolRequest(const McpTool& tool, boost::json::object arguments,
                                          const std::string& user);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_MCP_TOOLS_H_
