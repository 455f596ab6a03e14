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
  std::string& text() { return text_; }
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

void WriteQuotas(std::span<const TenantUse> tenants, Writer& out) {
  const auto line = [&](std::string_view name, const TenantUse& use, std::string_view what,
                        uint64_t value) {
    out.Line("{}{{tenant=\"{}\",what=\"{}\"}} {}\n", name, Escaped(use.tenant), what, value);
  };
  out.Head("inferscale_quota_used", "gauge",
           "What tenants with a quota have; the first hundred of them by name.");
  for (const TenantUse& use : tenants) {
    line("inferscale_quota_used", use, "facts", use.facts);
    line("inferscale_quota_used", use, "kv_bytes", use.kv_bytes);
  }
  out.Head("inferscale_quota_limit", "gauge", "What those tenants may have, where it is limited.");
  for (const TenantUse& use : tenants) {
    const TenantQuota& quota = use.quota;
    if (quota.facts != 0) line("inferscale_quota_limit", use, "facts", quota.facts);
    if (quota.kv_bytes != 0) line("inferscale_quota_limit", use, "kv_bytes", quota.kv_bytes);
    if (quota.encode_tokens_per_minute != 0) {
      line("inferscale_quota_limit", use, "encode_tokens_per_minute",
           quota.encode_tokens_per_minute);
    }
  }
}

}  // namespace

void Metrics::Latency::Observe(double value) {
  for (size_t i = 0; i < kBounds.size(); ++i) {
    if (value > kBounds[i]) continue;
    ++counts[i];
    break;
  }
  ++all;
  seconds += value;
}

void Metrics::Write(std::string_view name, std::string_view labels, const Latency& latency,
                    std::string& out) {
  auto to = std::back_inserter(out);
  uint64_t sum = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    sum += latency.counts[i];
    fmt::format_to(to, "{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, kBounds[i], sum);
  }
  fmt::format_to(to, "{}_bucket{{{},le=\"+Inf\"}} {}\n", name, labels, latency.all);
  fmt::format_to(to, "{}_sum{{{}}} {}\n", name, labels, latency.seconds);
  fmt::format_to(to, "{}_count{{{}}} {}\n", name, labels, latency.all);
}

void Metrics::Count(const RequestRecord& record) {
  const RouteName route(record.method, record.route);
  MutexLock lock(mutex_);
  ++requests_[{route, record.status}];
  latencies_[route].Observe(record.ms / 1000);
  if (record.answer) {
    const AnswerRecord& answer = *record.answer;
    if (answer.first_token_ms > 0) {
      first_tokens_[MemoryModeName(answer.mode)].Observe(answer.first_token_ms / 1000);
    }
    injected_ += answer.stats.injected_tokens;
    held_ += answer.stats.cached_tokens;
    computed_ += answer.stats.prefilled_tokens;
    generated_ += answer.stats.generated_tokens;
  }
  if (record.tenant.empty()) return;
  const auto known = tenants_.find(record.tenant);
  if (known != tenants_.end()) {
    ++known->second;
  } else {
    ++tenants_[tenants_.size() < kMaxTenants ? record.tenant : "other"];
  }
}

std::string Metrics::Text(const AppStats& stats, std::span<const TenantUse> tenants) const {
  Writer out;
  WriteStats(stats, out);
  WriteQuotas(tenants, out);
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
    Write("inferscale_http_request_seconds",
          fmt::format("method=\"{}\",route=\"{}\"", route.first, route.second), latency,
          out.text());
  }
  out.Head("inferscale_first_token_seconds", "histogram",
           "From a question to the first token of its answer, search included.");
  for (const auto& [mode, latency] : first_tokens_) {
    Write("inferscale_first_token_seconds", fmt::format("mode=\"{}\"", mode), latency, out.text());
  }
  out.Head("inferscale_prompt_tokens_total", "counter", "Tokens of prompts, by how they were had.");
  out.Line("inferscale_prompt_tokens_total{{how=\"injected\"}} {}\n", injected_);
  out.Line("inferscale_prompt_tokens_total{{how=\"held\"}} {}\n", held_);
  out.Line("inferscale_prompt_tokens_total{{how=\"computed\"}} {}\n", computed_);
  out.Value("inferscale_generated_tokens_total", "counter", "Tokens of answers.", generated_);
  out.Head("inferscale_tenant_requests_total", "counter",
           "Requests of a tenant; \"other\" are those beyond the first hundred tenants.");
  for (const auto& [tenant, count] : tenants_) {
    out.Line("inferscale_tenant_requests_total{{tenant=\"{}\"}} {}\n", Escaped(tenant), count);
  }
  return out.Take();
}

}  // namespace inferscale
