// Routes by which a key with access to administer makes and revokes keys.
#ifndef INFERSCALE_SERVER_KEY_API_H_
#define INFERSCALE_SERVER_KEY_API_H_

#include <boost/json.hpp>
#include <string_view>
#include <vector>

#include "server/keys.h"
#include "server/router.h"

namespace inferscale {

// {"id", "tenant", "access", "name", "per_minute", "created_at", "revoked_at"}
boost::json::object KeyToJson(const KeyInfo& info);
// The same with "key".
boost::json::object NewKeyToJson(const NewKey& made);

// The body of POST /v1/keys; the tenant is `tenant` if it names none.
Result<KeySpec> ParseKeySpec(std::string_view body, const std::string& tenant);

// `keys` must outlive the routes.
std::vector<Route> KeyRoutes(KeyStore& keys);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_KEY_API_H_
