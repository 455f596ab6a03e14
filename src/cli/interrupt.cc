#include "cli/interrupt.h"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <utility>

namespace inferscale {
namespace {

volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t hung_up = 0;

void OnSignal(int /*signal*/) { interrupted = 1; }
void OnHangup(int /*signal*/) { hung_up = 1; }

// A signal handler may set a flag and little else: so the flag is watched. Returns when it is set
// or `end` comes.
void Watch(const volatile std::sig_atomic_t& flag, const std::stop_token& end) {
  constexpr std::chrono::milliseconds kPause(20);
  std::mutex mutex;
  std::condition_variable_any ended;
  std::unique_lock lock(mutex);
  while (!end.stop_requested() && flag == 0) {
    ended.wait_for(lock, end, kPause, [] { return false; });
  }
}

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
        Watch(interrupted, end);
        if (Interrupted()) source_.request_stop();
      }) {}

HangupWatch::HangupWatch(std::function<void()> reload) : reload_(std::move(reload)) {
  hung_up = 0;
  struct sigaction action = {};
  action.sa_handler = OnHangup;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGHUP, &action, nullptr);
  watcher_ = std::jthread([this](const std::stop_token& end) {
    while (!end.stop_requested()) {
      Watch(hung_up, end);
      if (hung_up == 0) return;
      hung_up = 0;  // before it is done: what comes meanwhile asks for another turn
      reload_();
    }
  });
}

HangupWatch::~HangupWatch() {
  watcher_.request_stop();
  watcher_.join();
  std::signal(SIGHUP, SIG_DFL);
}

}  // namespace inferscale
