// Points in time as JSON has them: a text that ParseTime knows, or a number.
#ifndef INFERSCALE_MEMORY_JSON_TIME_H_
#define INFERSCALE_MEMORY_JSON_TIME_H_

#include <boost/json/value.hpp>
#include <cstdint>

#include "base/result.h"

namespace inferscale {

// Unix ms. A number is in seconds, or in milliseconds if it would lie after the year 5000 as
// seconds. kInvalid for everything else.
Result<int64_t> TimeFromJson(const boost::json::value& value);

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_JSON_TIME_H_
