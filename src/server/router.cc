#include "server/router.h"

#include <optional>
#include <utility>

namespace inferscale {
namespace {

std::vector<std::string> Split(std::string_view path) {
  std::vector<std::string> segments;
  if (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  while (!path.empty()) {
    path.remove_prefix(1);  // the slash
    const std::string_view segment = path.substr(0, path.find('/'));
    segments.emplace_back(segment);
    path.remove_prefix(segment.size());
  }
  return segments;
}

// What stands in the place of the pattern's {names}; nullopt if the two do not fit.
std::optional<std::vector<std::string>> Match(const std::vector<std::string>& pattern,
                                              const std::vector<std::string>& path) {
  if (pattern.size() != path.size()) return std::nullopt;
  std::vector<std::string> params;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (!pattern[i].starts_with('{')) {
      if (pattern[i] != path[i]) return std::nullopt;
      continue;
    }
    auto value = PercentDecode(path[i]);
    if (!value || value->empty()) return std::nullopt;
    params.push_back(*std::move(value));
  }
  return params;
}

}  // namespace

Router::Router(std::vector<Route> routes) : routes_(std::move(routes)) {
  for (const Route& route : routes_) segments_.push_back(Split(route.path));
}

std::variant<RouteMatch, WrongMethod, NoRoute> Router::Find(std::string_view method,
                                                            std::string_view path) const {
  if (!path.starts_with('/')) return NoRoute{};
  const std::vector<std::string> segments = Split(path);
  WrongMethod wrong;
  for (size_t i = 0; i < routes_.size(); ++i) {
    auto params = Match(segments_[i], segments);
    if (!params) continue;
    if (routes_[i].method == method) return RouteMatch{&routes_[i], *std::move(params)};
    if (!wrong.allowed.empty()) wrong.allowed += ", ";
    wrong.allowed += routes_[i].method;
  }
  if (wrong.allowed.empty()) return NoRoute{};
  return wrong;
}

}  // namespace inferscale
