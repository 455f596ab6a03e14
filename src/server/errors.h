// Errors as answers. Their body has both forms that clients read: OpenAI's `error` and Mem0's
// `detail`.
#ifndef INFERSCALE_SERVER_ERRORS_H_
#define INFERSCALE_SERVER_ERRORS_H_

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http_server.h"

namespace inferscale {

unsigned HttpStatusOf(Code code);
HttpAnswer ErrorAnswer(unsigned status, std::string_view message);
HttpAnswer ErrorAnswer(const Error& error);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_ERRORS_H_
