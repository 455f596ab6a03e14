// Time as an argument, so that expiry and back-off can be tested without waiting.
#ifndef INFERSCALE_BASE_CLOCK_H_
#define INFERSCALE_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace inferscale {

// Wall-clock time in milliseconds since the Unix epoch, UTC.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowMs() const = 0;
};

class SystemClock final : public Clock {
 public:
  int64_t NowMs() const override {
    using namespace std::chrono;
    return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  }
};

// For tests: stands still until told.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(int64_t now_ms = 0) : now_ms_(now_ms) {}
  int64_t NowMs() const override { return now_ms_; }
  void Advance(int64_t ms) { now_ms_ += ms; }

 private:
  int64_t now_ms_;
};

// Elapsed time of a step, for the numbers that a user is shown.
class Stopwatch {
 public:
  double Ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
        .count();
  }
  // The time since the start or the last lap.
  double LapMs() {
    const double ms = Ms();
    start_ = std::chrono::steady_clock::now();
    return ms;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace inferscale

#endif  // INFERSCALE_BASE_CLOCK_H_
