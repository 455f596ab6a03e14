#include "device_perf.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "base/clock.h"

namespace inferscale {

namespace {

struct Model {
  const char* name;
  uint32_t layers, heads, dim;
};

constexpr uint32_t kPageTokens = 16;
constexpr uint32_t kFactTokens = 32;

// A model's cache and a store of facts, each several times as large as the L2 cache so that calls
// in a row touch other memory.
class Perf {
 public:
  Perf(Device& device, const Model& model) : device_(device), model_(model) {}

  Status Prepare() {
    const uint64_t token_bytes = 4ULL * model_.layers * model_.heads * model_.dim;
    pool_tokens_ = static_cast<uint32_t>(
        std::min<uint64_t>(device_.info().memory_bytes / 8, uint64_t{8} << 30) / token_bytes / 512 *
        512);
    INFERSCALE_ASSIGN(store_, device_.Alloc(pool_tokens_ * token_bytes));
    INFERSCALE_ASSIGN(memory_, device_.Alloc(pool_tokens_ * token_bytes));
    // No zeros: a memory may be quicker with them.
    std::vector<uint32_t> noise(store_.bytes() / sizeof(uint32_t) / 64);
    std::mt19937 random(1);
    for (uint32_t& word : noise) word = 0x3F003F00U ^ (random() & 0x80FF80FFU);
    for (uint64_t at = 0; at < store_.bytes(); at += noise.size() * sizeof(uint32_t)) {
      const uint64_t bytes = std::min(store_.bytes() - at, noise.size() * sizeof(uint32_t));
      INFERSCALE_TRY(
          device_.Copy(store_.data() + at, noise.data(), bytes, cuda::kHostToDevice, {}));
    }
    INFERSCALE_TRY(device_.Synchronize({}));

    DeviceCacheSpec spec;
    const int64_t head = 2 * model_.dim;
    for (uint32_t l = 0; l < model_.layers; ++l) {  // [page][token][head][K, V]
      const auto base =
          reinterpret_cast<uint64_t>(memory_.data()) + l * (memory_.bytes() / model_.layers);
      spec.k_base.push_back(base);
      spec.v_base.push_back(base + static_cast<uint64_t>(head));
    }
    spec.k = spec.v = {kPageTokens * model_.heads * 2 * head, model_.heads * 2 * head, 2 * head};
    spec.page_tokens = kPageTokens;
    spec.pages = pool_tokens_ / kPageTokens;
    spec.heads = model_.heads;
    spec.dim = model_.dim;
    const RopeTable rope({.kind = RopeKind::kNeox,
                          .head_dim = model_.dim,
                          .rotary_dims = model_.dim,
                          .freq_base = 5e5F});
    const std::vector<uint8_t> layers(model_.layers, 0);
    INFERSCALE_ASSIGN(cache_, device_.Describe(spec, {{&rope, 1}, layers}, 32768));
    pages_.resize(spec.pages);
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), random);
    return {};
  }

  Status Print(uint32_t tokens) {
    const uint64_t token_bytes = 4ULL * model_.layers * model_.heads * model_.dim;
    const uint32_t sets = pool_tokens_ / tokens;
    std::vector<std::vector<DeviceSpan>> spans(sets);
    for (uint32_t set = 0; set < sets; ++set) {
      for (uint32_t at = 0; at < tokens; at += kFactTokens) {
        DeviceSpan span;
        span.record = store_.data() + (uint64_t{set} * tokens + at) * token_bytes;
        span.record_tokens = span.tokens = std::min(kFactTokens, tokens - at);
        span.position = static_cast<int32_t>(40 + at);
        span.page_token = at;
        spans[set].push_back(span);
      }
    }
    const auto transfer = [&](uint32_t i) {
      const uint32_t set = i % sets;
      return DeviceTransfer{Dtype::kBF16, nullptr, spans[set],
                            std::span(pages_).subspan(set * (tokens / kPageTokens),
                                                      (tokens + kPageTokens - 1) / kPageTokens)};
    };
    INFERSCALE_ASSIGN(const double copy, Median([&](uint32_t i) {
                        const uint64_t bytes = tokens * token_bytes;
                        return device_.Copy(memory_.data() + i % sets * bytes,
                                            store_.data() + i * 7 % sets * bytes, bytes,
                                            cuda::kDeviceToDevice, {});
                      }));
    INFERSCALE_ASSIGN(const double inject,
                      Median([&](uint32_t i) { return device_.Inject(transfer(i), cache_, {}); }));
    INFERSCALE_ASSIGN(const double capture,
                      Median([&](uint32_t i) { return device_.Capture(transfer(i), cache_, {}); }));
    fmt::print("{:<14} {:>6} {:>8.0f} {:>9.1f} {:>9.1f} {:>5.0f} % {:>9.1f} {:>5.0f} %\n",
               model_.name, tokens, 2e-6 * static_cast<double>(tokens * token_bytes), copy, inject,
               100 * copy / inject, capture, 100 * copy / capture);
    return {};
  }

 private:
  // Microseconds of one call among many, the median of nine such runs.
  template <typename Call>
  Result<double> Median(Call call) {
    constexpr uint32_t kCalls = 64;
    std::vector<double> runs;
    uint32_t i = 0;
    for (int run = 0; run < 10; ++run) {
      INFERSCALE_TRY(device_.Synchronize({}));
      const Stopwatch watch;
      for (uint32_t n = 0; n < kCalls; ++n) INFERSCALE_TRY(call(i++));
      INFERSCALE_TRY(device_.Synchronize({}));
      if (run > 0) runs.push_back(watch.Ms() * 1000 / kCalls);
    }
    std::sort(runs.begin(), runs.end());
    return runs[runs.size() / 2];
  }

  Device& device_;
  const Model model_;
  uint32_t pool_tokens_ = 0;
  DeviceMemory store_, memory_;
  DeviceCache cache_;
  std::vector<int32_t> pages_;
};

}  // namespace

Status PrintDevicePerf(Device& device) {
  fmt::print("{:<14} {:>6} {:>8} {:>9} {:>9} {:>7} {:>9}\n", "bf16", "tokens", "MB", "copy us",
             "inject us", "of copy", "capture");
  for (const Model& model : {Model{"Llama-3.2-1B", 16, 8, 64}, Model{"Llama-3.1-8B", 32, 8, 128},
                             Model{"Qwen3-8B", 36, 8, 128}}) {
    Perf perf(device, model);
    INFERSCALE_TRY(perf.Prepare());
    for (const uint32_t tokens : {64U, 512U, 1536U, 4096U, 16384U}) {
      INFERSCALE_TRY(perf.Print(tokens));
    }
  }
  return {};
}

}  // namespace inferscale
