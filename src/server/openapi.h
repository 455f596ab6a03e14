// The OpenAPI document, made from the table of routes.
#ifndef INFERSCALE_SERVER_OPENAPI_H_
#define INFERSCALE_SERVER_OPENAPI_H_

#include <boost/json.hpp>
#include <span>

#include "server/router.h"

namespace inferscale {

// OpenAPI 3.1 of what is offered. Throws if a route's schema is no JSON, which is a bug.
boost::json::object OpenApiDocument(std::span<const Route> routes);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_OPENAPI_H_
