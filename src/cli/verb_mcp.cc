#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "server/mcp.h"
#include "server/memory_api.h"

namespace inferscale {
namespace {

constexpr size_t kMaxLine = 4 << 20;  // as much as a body over HTTP

// The lines of standard input. Of a line that is too long only its beginning is kept, which is
// no JSON then.
class Lines {
 public:
  // False at the end, or when the user wants to stop.
  Result<bool> Next(std::string& line) {
    line.clear();
    for (;;) {
      const std::string_view rest(buffer_.data() + at_, filled_ - at_);
      const size_t length = rest.find('\n');
      line.append(rest.substr(0, std::min(length, kMaxLine - line.size())));
      if (length != std::string_view::npos) {
        at_ += length + 1;
        return true;
      }
      if (!Wait()) return false;
      const ssize_t got = ::read(STDIN_FILENO, buffer_.data(), buffer_.size());
      if (got < 0 && errno != EINTR) {
        return Fail(Code::kTransient, "can't read standard input: {}", std::strerror(errno));
      }
      at_ = 0;
      filled_ = static_cast<size_t>(std::max<ssize_t>(0, got));
      if (got == 0) return !line.empty();
    }
  }

 private:
  // Until there is something to read. A read by itself might miss a signal that comes just before
  // it, and wait forever.
  static bool Wait() {
    constexpr int kPauseMs = 100;
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    while (!Interrupted()) {
      if (::poll(&input, 1, kPauseMs) > 0) return true;
    }
    return false;
  }

  std::array<char, 1 << 16> buffer_{};
  size_t at_ = 0;
  size_t filled_ = 0;
};

Result<int> Run(const Options& options) {
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kSearch));
  const SystemClock clock;
  const McpServer server(MemoryRoutes(*app, clock));
  const Caller caller{options.scope.tenant, Access::kWrite, {}};
  if (isatty(STDIN_FILENO) != 0) {
    Say("programs talk to this in MCP's JSON, a message a line; Ctrl-D ends it");
  }
  Lines lines;
  std::string line;
  for (;;) {
    INFERSCALE_ASSIGN(const bool more, lines.Next(line));
    if (!more) return kExitOk;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const McpAnswer answer = server.Answer({line, caller, options.scope.user});
    if (answer.text.empty()) continue;
    Print(answer.text + "\n");
    if (!FlushOutput()) return kExitOk;  // nobody reads any more
  }
}

}  // namespace

Verb McpVerb(CLI::App& root) {
  CLI::App* command = AddCommand(
      root, "mcp",
      "Memory tools for agents, in the Model Context Protocol on standard input and output; they "
      "are about --user, where they name nobody",
      {"inferscale mcp --user ana", "inferscale mcp --data-dir ~/memories"});
  return {command, [](const Options& options) { return Run(options); }};
}

}  // namespace inferscale
