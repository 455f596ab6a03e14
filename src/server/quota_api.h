// Routes by which an administrator says what a tenant may have, and the JSON of it.
#ifndef INFERSCALE_SERVER_QUOTA_API_H_
#define INFERSCALE_SERVER_QUOTA_API_H_

#include <boost/json.hpp>
#include <vector>

#include "app/app.h"
#include "server/router.h"

namespace inferscale {

// {"facts": {"used", "limit"}, "kv_bytes": {"used", "limit"}, "encode_tokens_per_minute":
// {"limit"}}; a limit is null if there is none.
boost::json::object QuotaToJson(const TenantUse& use);
// Of all tenants that have a quota, each with "tenant".
Result<boost::json::array> QuotasToJson(App& app);

// `app` must outlive the routes.
std::vector<Route> QuotaRoutes(App& app);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_QUOTA_API_H_
