#ifndef INFERSCALE_BASE_TIME_TEXT_H_
#define INFERSCALE_BASE_TIME_TEXT_H_

#include <cstdint>
#include <string>

namespace inferscale {

enum class Millis : uint8_t { kAlways, kUnlessZero };

// Unix ms as ISO 8601 in UTC: "2024-05-08T13:56:00.250Z"; kUnlessZero: "2024-05-08T13:56:00Z" for a
// whole second.
std::string TimeText(int64_t unix_ms, Millis millis);

}  // namespace inferscale

#endif  // INFERSCALE_BASE_TIME_TEXT_H_
