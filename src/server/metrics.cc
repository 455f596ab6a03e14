#include "server/metrics.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace inferscale {
namespace {

// A label's value between quotes.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

class Writer {
 public:
  void Head(std::string_view name, std::string_view type, std::string_view help) {
    Line("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <typename... Args>
  void Line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  void Value(std::string_view name, std::string_view type, std::string_view help, uint64_t value) {
    Head(name, type, help);
    Line("{} {}\n", name, value);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

void WriteStats(const AppStats& stats, Writer& out) {
  out.Value("inferscale_facts", "gauge", "Facts that are kept.", stats.facts.facts);
  out.Value("inferscale_users", "gauge", "Users who have facts.", stats.facts.users);
  out.Value("inferscale_episodes", "gauge", "Episodes of facts.", stats.facts.episodes);
  out.Value("inferscale_episodes_encoded", "gauge", "Episodes whose KV is complete.",
            stats.facts.episodes_encoded);
  out.Value("inferscale_memory_file_bytes", "gauge", "Size of memory.db and its log.",
            stats.facts.file_bytes);
  out.Value("inferscale_stale_kv_total", "counter",
            "KV records that did not fit their facts and were not used.", stats.stale_kv);
  if (!stats.kv) return;
  out.Value("inferscale_kv_records", "gauge", "KV records on disk.", stats.kv->records);
  out.Value("inferscale_kv_disk_bytes", "gauge", "Blocks of KV segments on disk.",
            stats.kv->disk_bytes);
  out.Value("inferscale_kv_arena_bytes", "gauge", "KV in host memory.", stats.kv->arena_bytes);
  out.Value("inferscale_kv_arena_budget_bytes", "gauge", "Most KV that host memory may hold.",
            stats.kv->arena_budget);
  out.Value("inferscale_kv_arena_hits_total", "counter", "KV records found in host memory.",
            stats.kv->arena_hits);
  out.Value("inferscale_kv_disk_reads_total", "counter", "KV records read from disk.",
            stats.kv->disk_reads);
  out.Value("inferscale_kv_misses_total", "counter", "KV records asked for and not there.",
            stats.kv->misses);
  out.Value("inferscale_kv_corrupt_total", "counter", "KV records that failed their checks.",
            stats.kv->corrupt_records);
  out.Value("inferscale_kv_evictions_total", "counter", "KV records that left host memory.",
            stats.kv->evictions);
}

}  // namespace

void Metrics::Count(const RequestSample& sample) {
  const RouteName route(sample.method, sample.path);
  MutexLock lock(mutex_);
  ++requests_[{route, sample.status}];
  Latency& latency = latencies_[route];
  for (size_t i = 0; i < kBounds.size(); ++i) {
    if (sample.seconds > kBounds[i]) continue;
    ++latency.counts[i];
    break;
  }
  ++latency.all;
  latency.seconds += sample.seconds;
  if (sample.tenant.empty()) return;
  const auto known = tenants_.find(sample.tenant);
  if (known != tenants_.end()) {
    ++known->second;
  } else {
    ++tenants_[tenants_.size() < kMaxTenants ? sample.tenant : "other"];
  }
}

std::string Metrics::Text(const AppStats& stats) const {
  Writer out;
  WriteStats(stats, out);
  MutexLock lock(mutex_);
  out.Head("inferscale_http_requests_total", "counter", "Requests answered.");
  for (const auto& [key, count] : requests_) {
    const auto& [route, status] = key;
    out.Line("inferscale_http_requests_total{{method=\"{}\",route=\"{}\",status=\"{}\"}} {}\n",
             route.first, route.second, status, count);
  }
  out.Head("inferscale_http_request_seconds", "histogram",
           "From a whole request to the end of its answer.");
  for (const auto& [route, latency] : latencies_) {
    const std::string labels = fmt::format("method=\"{}\",route=\"{}\"", route.first, route.second);
    uint64_t sum = 0;
    for (size_t i = 0; i < kBounds.size(); ++i) {
      sum += latency.counts[i];
      out.Line("inferscale_http_request_seconds_bucket{{{},le=\"{}\"}} {}\n", labels, kBounds[i],
               sum);
    }
    out.Line("inferscale_http_request_seconds_bucket{{{},le=\"+Inf\"}} {}\n", labels, latency.all);
    out.Line("inferscale_http_request_seconds_sum{{{}}} {}\n", labels, latency.seconds);
    out.Line("inferscale_http_request_seconds_count{{{}}} {}\n", labels, latency.all);
  }
  out.Head("inferscale_tenant_requests_total", "counter",
           "Requests of a tenant; \"other\" are those beyond the first hundred tenants.");
  for (const auto& [tenant, count] : tenants_) {
    out.Line("inferscale_tenant_requests_total{{tenant=\"{}\"}} {}\n", Escaped(tenant), count);
  }
  return out.Take();
}

}  // namespace inferscale
