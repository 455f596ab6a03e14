// Routes by which a gateway is watched: what it keeps, and what it was asked. Whoever needs no key
// and admin keys see all of it; another key sees what is its tenant's.
#ifndef INFERSCALE_SERVER_STATUS_API_H_
#define INFERSCALE_SERVER_STATUS_API_H_

#include <boost/json/value.hpp>
#include <string>
#include <vector>

#include "app/app.h"
#include "server/request_log.h"
#include "server/router.h"

namespace inferscale {

// What `inferscale verify` has measured for the settings in use; null before.
boost::json::value QualityToJson(App& app);

// Both must outlive the routes; `model` is the model's name for clients.
std::vector<Route> StatusRoutes(App& app, const RequestLog& log, std::string model);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_STATUS_API_H_
