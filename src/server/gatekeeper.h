// Who may ask: keys in the headers of requests, and how often.
#ifndef INFERSCALE_SERVER_GATEKEEPER_H_
#define INFERSCALE_SERVER_GATEKEEPER_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"
#include "server/access.h"
#include "server/http_server.h"
#include "server/keys.h"

namespace inferscale {

// When a key is asked for: as soon as one was made, always, never.
enum class AuthMode : uint8_t { kAuto, kOn, kOff };

struct GatekeeperOptions {
  AuthMode mode = AuthMode::kAuto;
  std::string tenant = "default";  // of who needs no key
  bool any_host = false;           // nothing but this user's own programs can reach the gateway
  uint32_t per_minute = 0;         // requests of a key that has no limit of its own; 0: any
};

// What a key is in a request's headers: "Authorization: Bearer KEY" or "Token KEY", or "X-API-Key:
// KEY". Empty if there is none.
std::string_view KeyOf(const HttpRequest& request);

// Thread-safe.
class Gatekeeper {
 public:
  // Both must outlive it.
  Gatekeeper(KeyStore& keys, const Clock& clock, GatekeeperOptions options);

  // Who asks, or the answer that refuses it: 401 without a key that is worth something, 403 if the
  // key may not do this, 429 if it asks too often. In kAuto, where no key is needed yet, the
  // request must name a loopback address as its host, unless it may be any: 403.
  tl::expected<Caller, HttpAnswer> Admit(const HttpRequest& request, Access needed);

  KeyStore& keys() { return keys_; }
  void SetPerMinute(uint32_t requests) { per_minute_ = requests; }  // as in the options

 private:
  // The seconds until a request of this key is due; 0: now.
  int64_t Wait(const KeyInfo& key) EXCLUDES(mutex_);

  KeyStore& keys_;
  const Clock& clock_;
  const GatekeeperOptions options_;
  std::atomic<uint32_t> per_minute_;
  struct Bucket {
    double tokens = 0;  // requests that may come at once
    int64_t at_ms = 0;  // when that was so
  };
  Mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_ GUARDED_BY(mutex_);  // by the key's id
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_GATEKEEPER_H_
