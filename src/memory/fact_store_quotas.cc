// What tenants may have.
#include "memory/sqlite_fact_store.h"

namespace inferscale {
namespace {

constexpr std::string_view kCount = "SELECT count(*) FROM facts WHERE tenant = ?1";

// The columns after `first` ones.
TenantQuota ReadQuota(const SqlQuery& query, int first) {
  return {static_cast<uint64_t>(query.Int(first)), static_cast<uint64_t>(query.Int(first + 1)),
          static_cast<uint64_t>(query.Int(first + 2))};
}

}  // namespace

Status CheckFactsQuota(SqlDatabase& db, const std::string& tenant) {
  INFERSCALE_ASSIGN(const int64_t most,
                    db.QueryInt("SELECT facts FROM quotas WHERE tenant = ?1", tenant));
  if (most == 0) return {};
  INFERSCALE_ASSIGN(const int64_t facts, db.QueryInt(kCount, tenant));
  if (facts <= most) return {};
  return Fail(Code::kOverQuota, "the tenant's quota of {} facts has no room: there would be {}",
              most, facts);
}

Status SqliteFactStore::PutQuota(const std::string& tenant, const TenantQuota& quota) {
  for (const uint64_t limit : {quota.facts, quota.kv_bytes, quota.encode_tokens_per_minute}) {
    if (limit > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return Fail(Code::kInvalid, "a quota is at most {}", std::numeric_limits<int64_t>::max());
    }
  }
  if (tenant.empty()) return Fail(Code::kInvalid, "a quota is a tenant's: name one");
  return Write([&](SqlDatabase& db) -> Status {
    if (quota == TenantQuota{}) {
      return db.Query("DELETE FROM quotas WHERE tenant = ?1", tenant).Run();
    }
    return db
        .Query("INSERT OR REPLACE INTO quotas VALUES(?1, ?2, ?3, ?4)", tenant, quota.facts,
               quota.kv_bytes, quota.encode_tokens_per_minute)
        .Run();
  });
}

Result<TenantQuota> SqliteFactStore::GetQuota(const std::string& tenant) {
  return Read([&](SqlDatabase& db) -> Result<TenantQuota> {
    SqlQuery query =
        db.Query("SELECT facts, kv_bytes, encode_tokens FROM quotas WHERE tenant = ?1", tenant);
    INFERSCALE_ASSIGN(const bool found, query.Next());
    return found ? ReadQuota(query, 0) : TenantQuota{};
  });
}

Result<std::vector<std::pair<std::string, TenantQuota>>> SqliteFactStore::Quotas() {
  return Read([&](SqlDatabase& db) -> Result<std::vector<std::pair<std::string, TenantQuota>>> {
    SqlQuery query =
        db.Query("SELECT tenant, facts, kv_bytes, encode_tokens FROM quotas ORDER BY tenant");
    std::vector<std::pair<std::string, TenantQuota>> quotas;
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) return quotas;
      quotas.emplace_back(query.Text(0), ReadQuota(query, 1));
    }
  });
}

Result<uint64_t> SqliteFactStore::CountFacts(const std::string& tenant) {
  return Read([&](SqlDatabase& db) -> Result<uint64_t> {
    INFERSCALE_ASSIGN(const int64_t facts, db.QueryInt(kCount, tenant));
    return static_cast<uint64_t>(facts);
  });
}

}  // namespace inferscale
