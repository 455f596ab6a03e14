#include "memory/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
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

}  // namespace

std::string WindowStrategy::ToString() const {
  for (const auto& [value, name] : kNames) {
    if (value == kind)
      return HasCount(kind) ? fmt::format("{}({})", name, count) : std::string(name);
  }
  return "unknown";
}

Result<WindowStrategy> ParseWindow(std::string_view text) {
  for (const auto& [kind, name] : kNames) {
    if (!text.starts_with(name)) continue;
    std::string_view rest = text.substr(name.size());
    if (!HasCount(kind)) {
      if (rest.empty()) return WindowStrategy{kind, 0};
      break;
    }
    if (rest.size() < 3 || rest.front() != '(' || rest.back() != ')') break;
    rest = rest.substr(1, rest.size() - 2);
    uint32_t count = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), count);
    if (error != std::errc() || end != rest.data() + rest.size() || count == 0 || count > 1000)
      break;
    return WindowStrategy{kind, count};
  }
  return Fail(
      Code::kInvalid,
      "window '{}' is none of isolated, session, anchor(N), window(N), neighbours(N) with N "
      "from 1 to 1000",
      text);
}

Hash128 EncodingId(const WindowStrategy& strategy, std::span<const Token> header) {
  return Hasher().Add(strategy.ToString()).AddBytes(std::as_bytes(header)).Digest();
}

Result<std::vector<Fact>> WindowChooser::Choose(const Episode& episode) {
  switch (strategy_.kind) {
    case WindowKind::kIsolated:
      return std::vector<Fact>{};
    case WindowKind::kAnchor:
      return Anchor(episode);
    case WindowKind::kWindow:
      return store_.FactsBefore(episode.id, strategy_.count);
    case WindowKind::kSession:
      return store_.FactsBefore(episode.id, kWholeSession);
    case WindowKind::kNeighbours: {
      INFERSCALE_ASSIGN(const std::vector<int64_t> rows, neighbours_(episode, strategy_.count));
      INFERSCALE_ASSIGN(std::vector<Fact> facts, store_.GetRows(rows));
      // In the order they were said: dates then rise, as they do in the episode.
      std::sort(facts.begin(), facts.end(),
                [](const Fact& a, const Fact& b) { return a.row < b.row; });
      return facts;
    }
  }
  return std::vector<Fact>{};
}

Result<std::vector<Fact>> WindowChooser::Anchor(const Episode& episode) {
  const std::string& tenant = episode.scope.tenant;
  const std::string& user = episode.scope.user;
  INFERSCALE_ASSIGN(const FactStore::AnchorAge age,
                    store_.GetAnchorAge(tenant, user, strategy_.count));
  // Facts of no user are of different agents or runs: nothing of one may stand before another's.
  if (user.empty() || age.facts_now < 2 * uint64_t{strategy_.count}) {
    return store_.FactsBefore(episode.id, strategy_.count);
  }
  INFERSCALE_ASSIGN(std::vector<Fact> anchor, store_.GetAnchor(tenant, user, strategy_.count));
  if (anchor.size() == strategy_.count && age.facts_now < kAnchorGrowth * age.facts_then) {
    return anchor;
  }
  const Scope scope{tenant, user, {}, {}};
  INFERSCALE_ASSIGN(const std::vector<Fact> all,
                    store_.List({.scope = scope, .limit = SIZE_MAX / 2}));
  if (all.size() < 2 * size_t{strategy_.count}) {  // some have expired
    return store_.FactsBefore(episode.id, strategy_.count);
  }
  anchor.clear();
  std::vector<std::string> ids;
  for (size_t i = 0; i < strategy_.count; ++i) {
    // The middle of each of `count` equal parts of the history.
    const Fact& fact = all[(2 * i + 1) * all.size() / (2 * size_t{strategy_.count})];
    anchor.push_back(fact);
    ids.push_back(fact.id);
  }
  INFERSCALE_TRY(store_.PutAnchor(tenant, user, ids));
  return anchor;
}

}  // namespace inferscale
