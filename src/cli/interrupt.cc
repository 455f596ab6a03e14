#include "cli/interrupt.h"

#include <csignal>

namespace inferscale {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void OnSignal(int /*signal*/) { interrupted = 1; }

}  // namespace

void CatchInterrupt() {
  interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  // No SA_RESTART: a read from the terminal must return. Reset, so that a second Ctrl-C always
  // ends.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

}  // namespace inferscale
