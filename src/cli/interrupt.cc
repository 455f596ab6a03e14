#include "cli/interrupt.h"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>

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

InterruptStop::InterruptStop()
    : watcher_([this](const std::stop_token& end) {
        // A signal handler may set a flag and little else: so the flag is watched.
        constexpr std::chrono::milliseconds kPause(20);
        std::mutex mutex;
        std::condition_variable_any ended;
        std::unique_lock lock(mutex);
        while (!end.stop_requested() && !Interrupted()) {
          ended.wait_for(lock, end, kPause, [] { return false; });
        }
        if (Interrupted()) source_.request_stop();
      }) {}

}  // namespace inferscale
