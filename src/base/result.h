// Expected failures are values: Result<T> holds a T or an Error. Exceptions end start-up or mark a
// bug; they never describe bad input, a full disk or a missing record.
#ifndef INFERSCALE_BASE_RESULT_H_
#define INFERSCALE_BASE_RESULT_H_

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace inferscale {

enum class Code : int {
  kInvalid = 1,   // The caller's input is wrong; trying again gives the same answer.
  kNotFound = 2,  // No such fact, record, file or key.
  kConflict = 3,  // The state does not allow it now (a lock is held, a version moved on).
  kCorrupt = 4,   // Stored bytes fail their checks.
  kTransient =
      5,  // The system refused this time (EIO, ENOSPC, EMFILE, SQLITE_BUSY); retry may work.
  kExhausted = 6,    // A configured budget, quota or queue is full.
  kUnsupported = 7,  // This model, file version or option is not supported.
  kCancelled = 8,    // The caller stopped it.
  kInternal = 9,     // A bug, or a library failed without a reason.
  kOverQuota = 10,   // An operator's limit for a tenant: waiting does not help.
};

// "invalid", "not found", ...: stable, for logs and JSON.
std::string_view CodeName(Code code);

// `message` says what was wrong with what, so that a user can act on it. It holds no fact text.
struct Error {
  Code code = Code::kInternal;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// return Fail(Code::kInvalid, "{}: line {} is not JSON", path, line);
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> Fail(Code code, fmt::format_string<Args...> format,
                                         Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

// Puts context in front of another error's message: "import turns.jsonl: line 3 is not JSON".
[[nodiscard]] inline tl::unexpected<Error> Wrap(Error error, std::string_view context) {
  error.message = fmt::format("{}: {}", context, error.message);
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace inferscale

// Returns the error of `expr` from the enclosing function, else goes on.
#define INFERSCALE_TRY(expr)                                                              \
  do {                                                                                    \
    if (auto inferscale_status = (expr); !inferscale_status)                              \
      return ::tl::unexpected<::inferscale::Error>(std::move(inferscale_status).error()); \
  } while (false)

#define INFERSCALE_CONCAT_INNER(a, b) a##b
#define INFERSCALE_CONCAT(a, b) INFERSCALE_CONCAT_INNER(a, b)
#define INFERSCALE_ASSIGN_INNER(temp, decl, expr)                                   \
  auto temp = (expr);                                                               \
  if (!temp) return ::tl::unexpected<::inferscale::Error>(std::move(temp).error()); \
  decl = std::move(*temp)
// INFERSCALE_ASSIGN(auto bytes, ReadFile(path)): assigns the value, or returns the error.
#define INFERSCALE_ASSIGN(decl, expr) \
  INFERSCALE_ASSIGN_INNER(INFERSCALE_CONCAT(inferscale_result_, __COUNTER__), decl, expr)

#endif  // INFERSCALE_BASE_RESULT_H_
