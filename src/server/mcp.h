// The Model Context Protocol over the memory routes: one JSON-RPC message in, at most one out. Both
// transports, HTTP and stdio, stand on this.
//
// The protocol is spoken in both of its forms: with a handshake (revisions 2024-11-05 to
// 2025-11-25), and as of 2026-07-28, where every request names its revision itself. Nothing is kept
// between messages, so there are no sessions.
#ifndef INFERSCALE_SERVER_MCP_H_
#define INFERSCALE_SERVER_MCP_H_

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/access.h"
#include "server/mcp_tools.h"
#include "server/router.h"

namespace inferscale {

// The codes of JSON-RPC 2.0 and of MCP.
enum class McpError : int {
  kParse = -32700,
  kInvalidRequest = -32600,
  kNoMethod = -32601,
  kInvalidParams = -32602,
  kHeaderMismatch = -32020,
  kNoVersion = -32022,
};

struct McpMessage {
  std::string_view text;
  const Caller& caller;
  std::string user{};  // the client's own; may be empty
  // What HTTP says beside the text; nullopt elsewhere.
  struct Headers {
    std::string_view version;
    std::string_view method;
    std::string_view name;
  };
  std::optional<Headers> headers{};
};

struct McpAnswer {
  std::string text;               // JSON on one line; empty if there is nothing to say
  std::optional<McpError> error;  // why the message was refused
  bool stateless = false;         // the message was of the form without a handshake
};

// Thread-safe.
class McpServer {
 public:
  // `routes`: those of server/memory_api.h, at least the ones that tools stand for.
  explicit McpServer(std::vector<Route> routes);

  McpAnswer Answer(const McpMessage& message) const;

 private:
  struct Refusal {
    McpError code;
    std::string message;
    boost::json::value data{};
  };
  using Outcome = tl::expected<boost::json::object, Refusal>;
  struct Tool {
    const McpTool* tool;
    const Route* route;
  };

  // Whether the request is of the stateless form.
  static tl::expected<bool, Refusal> ReadForm(const boost::json::object& request,
                                              const std::optional<McpMessage::Headers>& headers);
  Outcome Call(std::string_view method, const boost::json::object& params,
               const McpMessage& message) const;
  static Outcome Initialize(const boost::json::object& params);
  Outcome ListTools(const boost::json::object& params, const Caller& caller) const;
  Outcome CallTool(const boost::json::object& params, const McpMessage& message) const;

  const std::vector<Route> routes_;
  std::vector<Tool> tools_;
};

// POST /mcp, as the streamable HTTP transport has it, with answers as JSON. The client's own user
// is the URL's parameter user_id.
Route McpRoute(std::vector<Route> routes);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_MCP_H_
