// Signals. Ctrl-C: the first one asks to stop at the next good moment, a second one ends the
// process.
#ifndef INFERSCALE_CLI_INTERRUPT_H_
#define INFERSCALE_CLI_INTERRUPT_H_

#include <functional>
#include <stop_token>
#include <thread>

namespace inferscale {

// From now on SIGINT and SIGTERM only set the flag that Interrupted() reads, once; calling it again
// clears the flag.
void CatchInterrupt();
bool Interrupted();

// The same as a token that is stopped, for what can't ask by itself.
class InterruptStop {
 public:
  InterruptStop();
  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::jthread watcher_;  // last: it uses the source
};

// Calls `reload`, in a thread of its own, after every SIGHUP that comes while this lives. Where it
// does not, a SIGHUP ends the process, as when its terminal goes.
class HangupWatch {
 public:
  explicit HangupWatch(std::function<void()> reload);
  ~HangupWatch();
  HangupWatch(const HangupWatch&) = delete;
  HangupWatch& operator=(const HangupWatch&) = delete;

 private:
  const std::function<void()> reload_;
  std::jthread watcher_;  // last: it uses the function
};

}  // namespace inferscale

#endif  // INFERSCALE_CLI_INTERRUPT_H_
