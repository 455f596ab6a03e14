// One table of all routes: what is asked for is found here, and so is what there is to document.
#ifndef INFERSCALE_SERVER_ROUTER_H_
#define INFERSCALE_SERVER_ROUTER_H_

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/access.h"
#include "server/http_server.h"
#include "server/uri.h"

namespace inferscale {

struct RequestRecord;

// A request on its way to its handler.
struct Call {
  const HttpRequest& request;
  const Caller& caller;
  std::vector<std::string> params;  // of the path, decoded, in order
  QueryParams query;
  RequestRecord* record = nullptr;  // for what only the handler knows of it; null: nobody asks
};

using RouteHandler = std::function<void(const Call&, HttpResponder&)>;

// What a route takes and answers, as JSON Schema: for the OpenAPI document. Empty: not said.
struct RouteSchemas {
  std::string_view query{};  // an object: the URL's parameters and the schema of each
  std::string_view body{};
  std::string_view answer{};                                             // with status 200
  std::string_view error = R"({"$ref": "#/components/schemas/Error"})";  // of 400 and 404
};

struct Route {
  std::string method;
  std::string path;  // "/v1/memories/{id}": {name} takes one segment, which is not empty
  Access access = Access::kRead;
  std::string what;  // for people: one line
  RouteHandler handler;
  RouteSchemas schemas{};
  bool quiet = false;   // asked again and again: not in the request log unless it fails
  bool offered = true;  // false: there only to say that it is not
};

struct RouteMatch {
  const Route* route = nullptr;
  std::vector<std::string> params;
};
// The path is there, but not for this method; the methods that it takes, as the Allow header has
// them.
struct WrongMethod {
  std::string allowed;
};
struct NoRoute {};

// Thread-safe once made.
class Router {
 public:
  explicit Router(std::vector<Route> routes);

  // `path` as it was sent. A slash at its end counts for nothing. A segment with a wrong %XX or
  // without text is no route. Of several routes the first is taken.
  std::variant<RouteMatch, WrongMethod, NoRoute> Find(std::string_view method,
                                                      std::string_view path) const;
  const std::vector<Route>& routes() const { return routes_; }

 private:
  std::vector<Route> routes_;
  std::vector<std::vector<std::string>> segments_;  // of each route's path
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_ROUTER_H_
