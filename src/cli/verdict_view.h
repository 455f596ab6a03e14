// The quality gate's verdict as JSON and for people.
#ifndef INFERSCALE_CLI_VERDICT_VIEW_H_
#define INFERSCALE_CLI_VERDICT_VIEW_H_

#include <boost/json/object.hpp>
#include <optional>
#include <span>
#include <string>

#include "app/gate.h"

namespace inferscale {

boost::json::object VerdictToJson(const GateVerdict& verdict);
// A row for each number of facts: KV, the noise, and whether it passed.
std::string GateTable(std::span<const GateMeasurement> measured);
// "passed on 2026-11-30 for prompts of 15 facts and more: KL 0.0210 (limit 0.0800), same top token
// 93.1 % (limit 83.0 %)", or what to do if there is none.
std::string DescribeVerdict(const std::optional<GateVerdict>& verdict);

}  // namespace inferscale

#endif  // INFERSCALE_CLI_VERDICT_VIEW_H_
