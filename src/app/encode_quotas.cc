#include "app/encode_quotas.h"

#include <algorithm>

namespace inferscale {

Result<bool> EncodeQuotas::Waits(const std::string& tenant, EncodePace pace) {
  INFERSCALE_ASSIGN(const TenantQuota quota, facts_.GetQuota(tenant));
  return Waits(tenant, quota, pace);
}

Result<std::vector<std::string>> EncodeQuotas::Waiting(EncodePace pace) {
  INFERSCALE_ASSIGN(const auto quotas, facts_.Quotas());
  std::vector<std::string> waiting;
  for (const auto& [tenant, quota] : quotas) {
    INFERSCALE_ASSIGN(const bool waits, Waits(tenant, quota, pace));
    if (waits) waiting.push_back(tenant);
  }
  return waiting;
}

Result<bool> EncodeQuotas::Waits(const std::string& tenant, const TenantQuota& quota,
                                 EncodePace pace) {
  if (quota.kv_bytes != 0) {
    INFERSCALE_ASSIGN(const uint64_t used, kv_.TenantBytes(tenant));
    if (used >= quota.kv_bytes) return true;
  }
  if (quota.encode_tokens_per_minute == 0) {
    buckets_.erase(tenant);
    return false;
  }
  constexpr double kMinuteMs = 60'000;
  const auto per_minute = static_cast<double>(quota.encode_tokens_per_minute);
  const int64_t now = clock_.NowMs();
  const auto [found, is_new] = buckets_.try_emplace(tenant, Bucket{per_minute, now});
  Bucket& bucket = found->second;
  // The clock may be set back.
  const auto passed = static_cast<double>(std::max<int64_t>(0, now - bucket.at_ms));
  bucket.tokens = std::min(per_minute, bucket.tokens + passed * per_minute / kMinuteMs);
  bucket.at_ms = now;
  return pace == EncodePace::kByQuota && bucket.tokens <= 0;
}

void EncodeQuotas::Spend(const std::string& tenant, uint64_t tokens) {
  const auto found = buckets_.find(tenant);
  if (found != buckets_.end()) found->second.tokens -= static_cast<double>(tokens);
}

}  // namespace inferscale
