#include "memory/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <utility>

namespace inferscale {
namespace {

constexpr std::array<std::pair<WindowKind, std::string_view>, 5> kNames = {{
    {WindowKind::kIsolated, "isolated"},
    {WindowKind::kAnchor, "anchor"},
    {WindowKind::kWindow, "window"},
    {WindowKind::kSession, "session"},
    {WindowKind::kNeighbours, "neighbours"},
}};

bool HasCount(WindowKind kind) {
  return kind != WindowKind::kIsolated && kind != WindowKind::kSession;
}

// Draws again when the history is this many times as long as it was.
constexpr uint64_t kAnchorGrowth = 4;
constexpr size_t kWholeSession = 10000;
constexpr uint32_t kMaxCount = 1000;

// "8+20" as numbers; empty if it is anything else.
std::vector<uint32_t> ParseCounts(std::string_view text) {
  std::vector<uint32_t> counts;
  while (true) {
    uint32_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || count == 0 || count > kMaxCount) return {};
    counts.push_back(count);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return counts.size() <= kMaxWindows ? counts : std::vector<uint32_t>();
    if (text.front() != '+') return {};
    text.remove_prefix(1);
  }
}

bool HoldsAny(std::span<const Fact> window, const Episode& episode) {
  return std::any_of(window.begin(), window.end(),
                     [&](const Fact& fact) { return fact.episode == episode.id; });
}

bool SameFacts(std::span<const Fact> a, std::span<const Fact> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Fact& x, const Fact& y) { return x.row == y.row; });
}

}  // namespace

std::string WindowStrategy::ToString() const {
  for (const auto& [value, name] : kNames) {
    if (value != kind) continue;
    return HasCount(kind) ? fmt::format("{}({})", name, fmt::join(counts, "+")) : std::string(name);
  }
  return "unknown";
}

Result<WindowStrategy> ParseWindow(std::string_view text) {
  for (const auto& [kind, name] : kNames) {
    if (!text.starts_with(name)) continue;
    std::string_view rest = text.substr(name.size());
    if (!HasCount(kind)) {
      if (rest.empty()) return WindowStrategy{kind, {}};
      break;
    }
    if (rest.size() < 3 || rest.front() != '(' || rest.back() != ')') break;
    std::vector<uint32_t> counts = ParseCounts(rest.substr(1, rest.size() - 2));
    if (counts.empty()) break;
    return WindowStrategy{kind, std::move(counts)};
  }
  return Fail(
      Code::kInvalid,
      "window '{}' is none of isolated, session, anchor(N), window(N), neighbours(N) with N "
      "from 1 to {}, or several as in anchor(8+20), at most {}",
      text, kMaxCount, kMaxWindows);
}

Hash128 EncodingId(const WindowStrategy& strategy, std::span<const Token> header) {
  return Hasher().Add(strategy.ToString()).AddBytes(std::as_bytes(header)).Digest();
}

Result<std::vector<std::vector<Fact>>> WindowChooser::Choose(const Episode& episode) {
  if (strategy_.kind == WindowKind::kAnchor) {
    INFERSCALE_ASSIGN(auto anchors, Anchors(episode));
    if (!anchors.empty()) return anchors;
  }
  std::vector<std::vector<Fact>> windows;
  for (const uint32_t count : strategy_.counts.empty() ? std::vector{0U} : strategy_.counts) {
    INFERSCALE_ASSIGN(std::vector<Fact> window, ChooseOne(episode, count));
    const bool known = std::any_of(windows.begin(), windows.end(),
                                   [&](const auto& other) { return SameFacts(other, window); });
    if (!known) windows.push_back(std::move(window));
  }
  return windows;
}

Result<std::vector<Fact>> WindowChooser::ChooseOne(const Episode& episode, uint32_t count) {
  switch (strategy_.kind) {
    case WindowKind::kIsolated:
      return std::vector<Fact>{};
    case WindowKind::kAnchor:  // none is drawn yet
    case WindowKind::kWindow:
      return store_.FactsBefore(episode.id, count);
    case WindowKind::kSession:
      return store_.FactsBefore(episode.id, kWholeSession);
    case WindowKind::kNeighbours: {
      INFERSCALE_ASSIGN(const std::vector<int64_t> rows, neighbours_(episode, count));
      INFERSCALE_ASSIGN(std::vector<Fact> facts, store_.GetRows(rows));
      // In the order they were said: dates then rise, as they do in the episode.
      std::sort(facts.begin(), facts.end(),
                [](const Fact& a, const Fact& b) { return a.row < b.row; });
      return facts;
    }
  }
  return std::vector<Fact>{};
}

Result<std::vector<std::vector<Fact>>> WindowChooser::Anchors(const Episode& episode) {
  std::vector<std::vector<Fact>> anchors;
  // Facts of no user are of different agents or runs: nothing of one may stand before another's.
  if (episode.scope.user.empty()) return anchors;
  INFERSCALE_ASSIGN(const std::vector<Fact> facts,
                    AnchorFacts({episode.scope.tenant, episode.scope.user, {}, {}}));
  if (facts.empty()) return anchors;
  auto from = facts.begin();
  for (const uint32_t count : strategy_.counts) {
    anchors.emplace_back(from, from + count);
    from += count;
  }
  std::vector<Fact> first = anchors.front();
  std::erase_if(anchors, [&](const auto& anchor) { return HoldsAny(anchor, episode); });
  // A window of its own would have to be computed for this episode alone.
  if (anchors.empty()) anchors.push_back(std::move(first));
  return anchors;
}

Result<std::vector<Fact>> WindowChooser::AnchorFacts(const Scope& user) {
  const std::vector<uint32_t>& counts = strategy_.counts;
  const size_t longest = *std::max_element(counts.begin(), counts.end());
  const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
  INFERSCALE_ASSIGN(const FactStore::AnchorAge age,
                    store_.GetAnchorAge(user.tenant, user.user, total));
  if (age.facts_now < 2 * longest) return std::vector<Fact>{};
  INFERSCALE_ASSIGN(std::vector<Fact> facts, store_.GetAnchor(user.tenant, user.user, total));
  if (facts.size() == total && age.facts_now < kAnchorGrowth * age.facts_then) return facts;
  INFERSCALE_ASSIGN(const std::vector<Fact> all,
                    store_.List({.scope = user, .limit = SIZE_MAX / 2}));
  if (all.size() < 2 * longest) return std::vector<Fact>{};  // some have expired
  facts.clear();
  std::vector<std::string> ids;
  for (size_t w = 0; w < counts.size(); ++w) {
    const size_t parts = counts[w] * 2 * counts.size();
    for (size_t i = 0; i < counts[w]; ++i) {
      // One of each of `count` equal parts of the history, another one for each window.
      const size_t at = (i * 2 * counts.size() + 2 * w + 1) * all.size() / parts;
      facts.push_back(all[at]);
      ids.push_back(all[at].id);
    }
  }
  INFERSCALE_TRY(store_.PutAnchor(user.tenant, user.user, ids));
  return facts;
}

}  // namespace inferscale
