// Keys of the gateway: who may ask, for which tenant, and what. A file of its own (keys.db, WAL,
// synchronous=FULL), which several processes may use: what one of them revokes no other accepts
// from then on.
//
// A key is text: "isk-", its id, '-' and 256 random bits. The id is no secret: lists and logs name
// a key by it. Of the rest only a SHA-256 is kept, which tells nothing of so many random bits.
#ifndef INFERSCALE_SERVER_KEYS_H_
#define INFERSCALE_SERVER_KEYS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/sqlite.h"
#include "server/access.h"

namespace inferscale {

struct KeySpec {
  std::string tenant;
  Access access = Access::kWrite;  // not kOpen
  std::string name{};              // what it is for, for people
  uint32_t per_minute = 0;         // requests; 0: the gateway's own limit
};

struct KeyInfo {
  std::string id;
  KeySpec spec;
  int64_t created_ms = 0;  // or rotated
  std::optional<int64_t> revoked_ms;
};

struct NewKey {
  KeyInfo info;
  std::string key;  // told this once
};

// "read", "write" or "admin".
std::string_view KeyAccessName(Access access);
Result<Access> ParseKeyAccess(std::string_view name);

// Thread-safe.
class KeyStore {
 public:
  // Made readable for its owner only. kCorrupt for another kind of file or a newer version's.
  static Result<std::unique_ptr<KeyStore>> Open(const Clock& clock, const std::string& path);

  // kInvalid unless the tenant has a name and all is UTF-8.
  Result<NewKey> Create(const KeySpec& spec);
  // Only if no key was ever made here; else nullopt.
  Result<std::optional<NewKey>> CreateFirst(const KeySpec& spec);
  // Another secret for the same id; the former is worth nothing from then on. kNotFound if there is
  // no such key or it is revoked.
  Result<NewKey> Rotate(const std::string& id);
  // From then on nobody gets in with it. kNotFound if there is no such key; twice is no error.
  Status Revoke(const std::string& id);
  Result<std::vector<KeyInfo>> List();  // revoked ones too, oldest first
  // Whether a key was ever made here, even if it is revoked.
  Result<bool> Any();
  // Whose key it is; kNotFound if it is none or revoked.
  Result<KeyInfo> Check(std::string_view key);

 private:
  KeyStore(const Clock& clock, std::unique_ptr<SqlDatabase> db);
  Result<NewKey> Insert(const KeySpec& spec) REQUIRES(mutex_);

  const Clock& clock_;
  Mutex mutex_;
  std::unique_ptr<SqlDatabase> db_ GUARDED_BY(mutex_);
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_KEYS_H_
