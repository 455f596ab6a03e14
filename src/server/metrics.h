// Numbers for Prometheus (text format 0.0.4): requests by route, answers by how memory reached the
// model, and what is stored.
#ifndef INFERSCALE_SERVER_METRICS_H_
#define INFERSCALE_SERVER_METRICS_H_

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "app/app.h"
#include "base/mutex.h"
#include "server/request_log.h"

namespace inferscale {

// Thread-safe.
class Metrics {
 public:
  static constexpr size_t kMaxTenants = 100;  // with a label of their own; the rest are "other"

  void Count(const RequestRecord& record) EXCLUDES(mutex_);
  // `tenants`: those that have quotas.
  std::string Text(const AppStats& stats, std::span<const TenantUse> tenants = {}) const
      EXCLUDES(mutex_);

 private:
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                         0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0};
  struct Latency {
    std::array<uint64_t, kBounds.size()> counts{};  // up to each bound, without those before
    uint64_t all = 0;
    double seconds = 0;

    void Observe(double value);
  };
  static void Write(std::string_view name, std::string_view labels, const Latency& latency,
                    std::string& out);

  using RouteName = std::pair<std::string, std::string>;  // method, path

  mutable Mutex mutex_;
  std::map<std::pair<RouteName, unsigned>, uint64_t> requests_ GUARDED_BY(mutex_);
  std::map<RouteName, Latency> latencies_ GUARDED_BY(mutex_);
  std::map<std::string, uint64_t, std::less<>> tenants_ GUARDED_BY(mutex_);
  std::map<std::string_view, Latency> first_tokens_ GUARDED_BY(mutex_);  // by mode
  uint64_t injected_ GUARDED_BY(mutex_) = 0;                             // tokens
  uint64_t held_ GUARDED_BY(mutex_) = 0;
  uint64_t computed_ GUARDED_BY(mutex_) = 0;
  uint64_t generated_ GUARDED_BY(mutex_) = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_METRICS_H_
