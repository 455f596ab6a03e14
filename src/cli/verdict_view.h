// The quality gate's verdict as JSON and for people.
#ifndef INFERSCALE_CLI_VERDICT_VIEW_H_
#define INFERSCALE_CLI_VERDICT_VIEW_H_

#include <boost/json/object.hpp>
#include <optional>
#include <string>

#include "app/app.h"

namespace inferscale {

boost::json::object VerdictToJson(const GateVerdict& verdict);
// Both arms, the noise and the limits, a row each.
std::string VerdictTable(const GateVerdict& verdict);
// "passed on 2026-11-30: KL 0.021 of at most 0.080, same top token 93.1 % of at least 83.0 %", or
// what to do if there is none.
std::string DescribeVerdict(const std::optional<GateVerdict>& verdict);

}  // namespace inferscale

#endif  // INFERSCALE_CLI_VERDICT_VIEW_H_
