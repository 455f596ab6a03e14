// Names by which requests are found again: in logs, by clients and by proxies.
#ifndef INFERSCALE_SERVER_REQUEST_ID_H_
#define INFERSCALE_SERVER_REQUEST_ID_H_

#include <string>
#include <string_view>

namespace inferscale {

// 128 random bits in hex. Unique, not secret.
std::string NewId();

// What may go into logs and headers of others as it is: 1 to 128 visible characters of ASCII.
bool IsPlainId(std::string_view text);

// The client's own id if it is plain, else a new one.
std::string RequestId(std::string_view asked);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_REQUEST_ID_H_
