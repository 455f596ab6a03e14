// Mem0's memory routes: of its open-source server, and what its MemoryClient calls. The tenant is
// the caller's; ids of other tenants are not found, like any that do not exist.
#ifndef INFERSCALE_SERVER_MEMORY_API_H_
#define INFERSCALE_SERVER_MEMORY_API_H_

#include <vector>

#include "app/app.h"
#include "base/clock.h"
#include "server/add_queue.h"
#include "server/router.h"

namespace inferscale {

// All must outlive the routes. `app` needs what Need::kSearch opens. Without a queue everything is
// done before it is answered.
std::vector<Route> MemoryRoutes(App& app, const Clock& clock, AddQueue* queue = nullptr);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_MEMORY_API_H_
