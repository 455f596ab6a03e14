// FactStore on SQLite; the tables are described in fact_store_schema.cc.
//
// Two connections: one writes, one reads, so that a question does not wait for another user's
// fsync. A read sees every write that was acknowledged before it.
#ifndef INFERSCALE_MEMORY_SQLITE_FACT_STORE_H_
#define INFERSCALE_MEMORY_SQLITE_FACT_STORE_H_

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/sql_writer.h"
#include "base/sqlite.h"
#include "memory/fact_store.h"

namespace inferscale {

// The columns that ReadFact reads, of a table or join in which the facts are called f.
inline constexpr std::string_view kFactColumns =
    "f.row, f.id, f.tenant, f.user, f.agent, f.run, f.text, f.speaker, f.when_ms, f.metadata, "
    "f.version, f.created_ms, f.updated_ms, f.expires_ms, f.episode";
inline constexpr int kFactColumnCount = 15;
Fact ReadFact(const SqlQuery& query);

// Creates the tables in a new file, else checks that it is ours and of this version.
Status PrepareSchema(SqlDatabase& db);

class SqliteFactStore final : public FactStore {
 public:
  SqliteFactStore(const Clock& clock, FactStoreOptions options, std::unique_ptr<SqlDatabase> write,
                  std::unique_ptr<SqlDatabase> read);

  // fact_store_write.cc
  Result<std::vector<AddResult>> Add(std::span<const Fact> facts,
                                     std::span<const std::vector<float>> vectors,
                                     const Hash128& embedder_id) override;
  Result<std::vector<AddResult>> Restore(std::span<const FactWithHistory> facts,
                                         std::span<const std::vector<float>> vectors,
                                         const Hash128& embedder_id) override;
  Result<Fact> Update(const std::string& tenant, const std::string& id, const FactUpdate& update,
                      std::span<const float> vector, const Hash128& embedder_id) override;
  Result<size_t> Delete(const std::string& tenant, std::span<const std::string> ids) override;
  Result<size_t> DeleteScope(const Scope& scope) override;
  Result<size_t> DeleteExpired() override;
  Status PutVectors(std::span<const int64_t> rows, std::span<const std::vector<float>> vectors,
                    const Hash128& embedder_id) override;

  // fact_store_read.cc
  Result<std::vector<std::string>> FindDuplicates(std::span<const Fact> facts) override;
  Result<Fact> Get(const std::string& tenant, const std::string& id) override;
  Result<std::vector<Fact>> GetRows(std::span<const int64_t> rows) override;
  Result<std::vector<Fact>> List(const ListQuery& query) override;
  Result<size_t> Count(const ListQuery& query) override;
  Result<std::vector<std::string>> Users(const Scope& scope) override;
  Result<std::vector<Entity>> Entities(const std::string& tenant) override;
  Result<std::vector<HistoryEntry>> History(const std::string& tenant,
                                            const std::string& id) override;
  Result<Traces> FindTraces(const Scope& scope) override;
  Status ForEachStored(const StoredVisitor& visit) override;
  Result<int64_t> Generation(const std::string& tenant, const std::string& user) override;
  Status ForEachAfter(const std::string& tenant, const std::string& user, int64_t row,
                      const Hash128& embedder_id, const FactVisitor& visit) override;
  Result<std::vector<Fact>> WithoutVector(const Hash128& embedder_id, size_t limit) override;
  Result<FactStoreStats> Stats(const Fingerprint& fingerprint) override;
  Status Compact() override;
  Status Verify() override;

  // fact_store_episodes.cc
  Result<std::vector<Episode>> GetEpisodes(std::span<const int64_t> ids) override;
  Result<std::vector<Fact>> FactsBefore(int64_t episode, size_t count) override;
  Result<std::vector<EpisodeKv>> GetKv(std::span<const int64_t> episodes,
                                       const Fingerprint& fingerprint,
                                       const Hash128& encoding) override;
  Result<std::vector<int64_t>> PendingEpisodes(const Fingerprint& fingerprint,
                                               const Hash128& encoding,
                                               const PendingQuery& query) override;
  Result<uint64_t> CountPending(const Fingerprint& fingerprint, const Hash128& encoding) override;
  Status PutKv(const Fingerprint& fingerprint, const EncodedEpisode& encoded) override;
  Status ForgetKv(std::span<const Hash128> keys) override;
  Status PutEncodeFailure(const Fingerprint& fingerprint, int64_t episode,
                          const std::string& reason) override;
  Status UseRanks(uint32_t ranks) override;
  Result<std::vector<uint32_t>> RankCounts() override;
  Result<std::vector<Hash128>> Garbage(size_t limit) override;
  Status ClearGarbage(std::span<const Hash128> keys) override;
  Result<bool> IsReferenced(const Hash128& key) override;

  // fact_store_settings.cc
  Status UseSetting(const KvSetting& setting) override;
  Result<std::vector<KvSetting>> Settings() override;
  Result<std::vector<Hash128>> KeysOf(const Fingerprint& fingerprint,
                                      const Hash128& encoding) override;
  Status DropSetting(const Fingerprint& fingerprint, const Hash128& encoding) override;
  Status PutVerdict(const Hash128& id, const GateVerdict& verdict) override;
  Result<std::optional<GateVerdict>> GetVerdict(const Hash128& id) override;
  Result<std::vector<Fact>> GetAnchor(const std::string& tenant, const std::string& user,
                                      size_t size) override;
  Status PutAnchor(const std::string& tenant, const std::string& user,
                   std::span<const std::string> fact_ids) override;
  Result<AnchorAge> GetAnchorAge(const std::string& tenant, const std::string& user,
                                 size_t size) override;

  // fact_store_quotas.cc
  Status PutQuota(const std::string& tenant, const TenantQuota& quota) override;
  Result<TenantQuota> GetQuota(const std::string& tenant) override;
  Result<std::vector<std::pair<std::string, TenantQuota>>> Quotas() override;
  Result<uint64_t> CountFacts(const std::string& tenant) override;

 private:
  using Owners = std::set<std::pair<std::string, std::string>>;  // (tenant, user)
  Status CheckFact(const Fact& fact, std::string_view name) const;
  Status CheckFacts(std::span<const FactWithHistory> facts,
                    std::span<const std::vector<float>> vectors) const;
  // The write, and then the news of whose facts it changed.
  template <typename Body>
  std::invoke_result_t<Body, SqlDatabase&, Owners&> Change(const Body& body) {
    Owners owners;
    auto result = Write([&](SqlDatabase& db) { return body(db, owners); });
    if (!options_.on_change) return result;
    for (const auto& [tenant, user] : owners) options_.on_change(tenant, user);
    return result;
  }
  // The setting's number; a new one if it is named for the first time.
  Result<int64_t> SettingId(const Fingerprint& fingerprint, const Hash128& encoding);
  template <typename Body>
  std::invoke_result_t<Body, SqlDatabase&> Write(const Body& body) {
    return writer_.Write(body);
  }
  template <typename Body>
  std::invoke_result_t<Body, SqlDatabase&> Read(const Body& body) EXCLUDES(read_mutex_) {
    MutexLock lock(read_mutex_);
    return body(*read_);
  }

  const Clock& clock_;
  const FactStoreOptions options_;
  SqlWriter writer_;
  Mutex read_mutex_;
  std::unique_ptr<SqlDatabase> read_ GUARDED_BY(read_mutex_);
};

// A limit or offset as SQLite takes it.
inline int64_t ClampToInt64(size_t value) {
  return static_cast<int64_t>(std::min(value, size_t{std::numeric_limits<int64_t>::max()}));
}
// A condition on facts f that they belong to a query's scope, given as ?1 to ?4.
std::string ScopeCondition(const Scope& scope);
// kNotFound if there is none or it has expired.
Result<Fact> FindFact(SqlDatabase& db, const std::string& tenant, const std::string& id,
                      int64_t now_ms);
// All rows of a query over kFactColumns.
Result<std::vector<Fact>> ReadFacts(SqlQuery query);

// As FactStore's SettingId, inside a transaction.
Result<int64_t> PutSetting(SqlDatabase& db, const Fingerprint& fingerprint,
                           const Hash128& encoding);
// 0 if it has never been named.
Result<int64_t> FindSetting(SqlDatabase& db, const Fingerprint& fingerprint,
                            const Hash128& encoding);

// kOverQuota if the tenant has more facts than it may, inside the transaction that added some.
Status CheckFactsQuota(SqlDatabase& db, const std::string& tenant);

// A hash of who the facts belong to and what they say: equal for duplicates.
Hash128 SameHash(const Fact& fact);
// The id of a fact that is not expired and has this hash, or "".
Result<std::string> FindSame(SqlDatabase& db, const Hash128& same, int64_t now_ms);

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_SQLITE_FACT_STORE_H_
