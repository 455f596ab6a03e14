// Routes by which an administrator says what a tenant may have, and the JSON of it.
#ifndef INFERSCALE_SERVER_QUOTA_API_H_
#define INFERSCALE_SERVER_QUOTA_API_H_

#include <boost/json.hpp>
#include <span>
#include <vector>

#include "app/app.h"
#include "server/router.h"

namespace inferscale {

// {"facts": {"used", "limit"}, "kv_bytes": {"used", "limit"}, "encode_tokens_per_minute":
// {"limit"}}; a limit is null if there is none.
boost::json::object QuotaToJson(const TenantUse& use);
// The same with "tenant", and of several tenants.
boost::json::object UseToJson(const TenantUse& use);
boost::json::array UsesToJson(std::span<const TenantUse> uses);

// `app` must outlive the routes.
std::vector<Route> QuotaRoutes(App& app);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_QUOTA_API_H_
