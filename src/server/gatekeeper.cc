#include "server/gatekeeper.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/errors.h"

namespace inferscale {
namespace {

bool SameLetters(std::string_view a, std::string_view lower) {
  return std::ranges::equal(a, lower, [](char x, char y) {
    return (x >= 'A' && x <= 'Z' ? static_cast<char>(x - 'A' + 'a') : x) == y;
  });
}

// A page in a browser can have its own name point to this machine; but then it is that name which
// the browser sends.
bool NamesLoopback(std::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return IsLoopback(std::string(host));
}

tl::unexpected<HttpAnswer> Unauthorized(std::string_view message) {
  HttpAnswer answer = ErrorAnswer(401, message);
  answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  return tl::unexpected(std::move(answer));
}

}  // namespace

std::string_view KeyOf(const HttpRequest& request) {
  const std::string_view header = request.authorization;
  const size_t space = header.find(' ');
  if (space != std::string_view::npos) {
    const std::string_view scheme = header.substr(0, space);
    if (SameLetters(scheme, "bearer") || SameLetters(scheme, "token")) {
      std::string_view key = header.substr(space);
      key.remove_prefix(std::min(key.size(), key.find_first_not_of(' ')));
      return key;
    }
  }
  return request.api_key;
}

Gatekeeper::Gatekeeper(KeyStore& keys, const Clock& clock, GatekeeperOptions options)
    : keys_(keys), clock_(clock), options_(std::move(options)), per_minute_(options_.per_minute) {}

tl::expected<Caller, HttpAnswer> Gatekeeper::Admit(const HttpRequest& request, Access needed) {
  // Who needs no key can't make any either: that would shut everybody else out.
  const Caller anybody{options_.tenant, Access::kWrite, {}};
  if (needed == Access::kOpen) return anybody;
  Result<bool> asked = options_.mode == AuthMode::kOn;
  if (options_.mode == AuthMode::kAuto) asked = keys_.Any();
  if (!asked) return tl::unexpected(ErrorAnswer(503, "keys can't be read"));
  Caller caller = anybody;
  if (*asked) {
    const std::string_view key = KeyOf(request);
    if (key.empty()) {
      return Unauthorized("a key is needed: 'Authorization: Bearer KEY' or 'X-API-Key: KEY'");
    }
    const auto known = keys_.Check(key);
    if (!known && known.error().code != Code::kNotFound) {
      return tl::unexpected(ErrorAnswer(503, "keys can't be read"));
    }
    if (!known) return Unauthorized("this key is not known, or it is revoked");
    if (const int64_t wait = Wait(*known); wait > 0) {
      HttpAnswer answer =
          ErrorAnswer(429, fmt::format("too many requests with this key; wait {} s", wait));
      answer.headers.emplace_back("Retry-After", fmt::format("{}", wait));
      return tl::unexpected(std::move(answer));
    }
    caller = {known->spec.tenant, known->spec.access, known->id};
  }
  if (!*asked && options_.mode == AuthMode::kAuto && !options_.any_host &&
      !NamesLoopback(request.host)) {
    return tl::unexpected(ErrorAnswer(
        403,
        "no key was made, so only this machine is answered, by a loopback address or localhost"));
  }
  if (caller.access < needed) {
    return tl::unexpected(
        ErrorAnswer(403, fmt::format("this needs a key with access '{}'", KeyAccessName(needed))));
  }
  return caller;
}

int64_t Gatekeeper::Wait(const KeyInfo& key) {
  const uint32_t per_minute = key.spec.per_minute != 0 ? key.spec.per_minute : per_minute_.load();
  if (per_minute == 0) return 0;
  constexpr double kMinuteMs = 60'000;
  const int64_t now = clock_.NowMs();
  MutexLock lock(mutex_);
  const auto [found, is_new] = buckets_.try_emplace(key.id, Bucket{double{1} * per_minute, now});
  Bucket& bucket = found->second;
  // The clock may be set back.
  const auto passed = static_cast<double>(std::max<int64_t>(0, now - bucket.at_ms));
  bucket.tokens = std::min<double>(per_minute, bucket.tokens + passed * per_minute / kMinuteMs);
  bucket.at_ms = now;
  if (bucket.tokens >= 1) {
    bucket.tokens -= 1;
    return 0;
  }
  return std::max<int64_t>(1, std::lround(std::ceil((1 - bucket.tokens) * 60.0 / per_minute)));
}

}  // namespace inferscale
