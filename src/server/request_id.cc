#include "server/request_id.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace inferscale {
namespace {

constexpr size_t kMaxBytes = 128;

}  // namespace

std::string NewId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

bool IsPlainId(std::string_view text) {
  return !text.empty() && text.size() <= kMaxBytes &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
}

std::string RequestId(std::string_view asked) {
  return IsPlainId(asked) ? std::string(asked) : NewId();
}

}  // namespace inferscale
