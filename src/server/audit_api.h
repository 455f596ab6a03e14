// The route by which an administrator reads what was put into answers.
#ifndef INFERSCALE_SERVER_AUDIT_API_H_
#define INFERSCALE_SERVER_AUDIT_API_H_

#include "app/audit_log.h"
#include "server/router.h"

namespace inferscale {

// The log must outlive the route.
Route AuditRoute(AuditLog& log);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_AUDIT_API_H_
