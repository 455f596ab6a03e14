// Handlers that answer with one JSON value.
#ifndef INFERSCALE_SERVER_JSON_ROUTE_H_
#define INFERSCALE_SERVER_JSON_ROUTE_H_

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "server/router.h"

namespace inferscale {

// Answers with the value, or with the error.
RouteHandler Json(std::function<Result<boost::json::value>(const Call&)> answer);

// "2024-05-08T13:56:00.250Z" from Unix ms.
std::string TimeText(int64_t unix_ms);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_JSON_ROUTE_H_
