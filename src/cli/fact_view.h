// Facts as JSON and as tables.
#ifndef INFERSCALE_CLI_FACT_VIEW_H_
#define INFERSCALE_CLI_FACT_VIEW_H_

#include <boost/json/object.hpp>

#include "app/app.h"
#include "cli/options.h"
#include "cli/output.h"

namespace inferscale {

// {"id","text","speaker","when","user","agent","run","metadata","version","created","updated",
// "expires"}: all keys always there, null for what the fact has not.
boost::json::object FactToJson(const Fact& fact);

// One fact with all that it has, in the format that the options name.
void ShowFact(const Fact& fact, const Options& options);

// "8 May 2023" or nothing.
std::string FactDay(const Fact& fact);

}  // namespace inferscale

#endif  // INFERSCALE_CLI_FACT_VIEW_H_
