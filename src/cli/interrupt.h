// Ctrl-C: the first one asks to stop at the next good moment, a second one ends the process.
#ifndef INFERSCALE_CLI_INTERRUPT_H_
#define INFERSCALE_CLI_INTERRUPT_H_

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

}  // namespace inferscale

#endif  // INFERSCALE_CLI_INTERRUPT_H_
