// What tenants' quotas say about encoding. A fact that waits is text meanwhile.
#ifndef INFERSCALE_APP_ENCODE_QUOTAS_H_
#define INFERSCALE_APP_ENCODE_QUOTAS_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "memory/fact_store.h"
#include "store/kv_store.h"

namespace inferscale {

// Whether tokens per minute are heeded: by what goes on by itself, not by whom a person waits for.
enum class EncodePace : uint8_t { kByQuota, kAtOnce };

// Quotas are read anew by every call. Tokens are counted by this process alone, from its start on.
// Not thread-safe.
class EncodeQuotas {
 public:
  // All must outlive it.
  EncodeQuotas(FactStore& facts, KvStore& kv, const Clock& clock)
      : facts_(facts), kv_(kv), clock_(clock) {}

  // Whether nothing more of this tenant is to be encoded now: its KV has reached its quota, or the
  // tokens of the last minute have.
  Result<bool> Waits(const std::string& tenant, EncodePace pace);
  // The tenants of whom that is so.
  Result<std::vector<std::string>> Waiting(EncodePace pace);
  // So many tokens were computed for a tenant; more than it had are owed, and waited for.
  void Spend(const std::string& tenant, uint64_t tokens);

 private:
  Result<bool> Waits(const std::string& tenant, const TenantQuota& quota, EncodePace pace);

  FactStore& facts_;
  KvStore& kv_;
  const Clock& clock_;
  struct Bucket {
    double tokens = 0;  // left; negative: owed
    int64_t at_ms = 0;  // when that was so
  };
  std::unordered_map<std::string, Bucket> buckets_;  // of tenants that have such a quota
};

}  // namespace inferscale

#endif  // INFERSCALE_APP_ENCODE_QUOTAS_H_
