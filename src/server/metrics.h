// Numbers for Prometheus (text format 0.0.4): requests by route, and what is stored.
#ifndef INFERSCALE_SERVER_METRICS_H_
#define INFERSCALE_SERVER_METRICS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "app/app.h"
#include "base/mutex.h"

namespace inferscale {

// A request that was answered.
struct RequestSample {
  std::string_view method;  // of a route, not of the request: so there are only so many
  std::string_view path;    // likewise; empty if there was no such route
  unsigned status = 0;
  double seconds = 0;
  std::string tenant;  // empty if nobody was let in
};

// Thread-safe.
class Metrics {
 public:
  static constexpr size_t kMaxTenants = 100;  // with a label of their own; the rest are "other"

  void Count(const RequestSample& sample) EXCLUDES(mutex_);
  std::string Text(const AppStats& stats) const EXCLUDES(mutex_);

 private:
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                         0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0};
  struct Latency {
    std::array<uint64_t, kBounds.size()> counts{};  // up to each bound, without those before
    uint64_t all = 0;
    double seconds = 0;
  };
  using RouteName = std::pair<std::string, std::string>;  // method, path

  mutable Mutex mutex_;
  std::map<std::pair<RouteName, unsigned>, uint64_t> requests_ GUARDED_BY(mutex_);
  std::map<RouteName, Latency> latencies_ GUARDED_BY(mutex_);
  std::map<std::string, uint64_t, std::less<>> tenants_ GUARDED_BY(mutex_);
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_METRICS_H_
