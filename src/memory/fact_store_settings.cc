// The settings that KV is made under, and the anchors of users.
#include <algorithm>

#include "memory/sqlite_fact_store.h"

namespace inferscale {

Result<int64_t> FindSetting(SqlDatabase& db, const Fingerprint& fingerprint,
                            const Hash128& encoding) {
  return db.QueryInt("SELECT id FROM settings WHERE fingerprint = ?1 AND encoding = ?2",
                     fingerprint, encoding);
}

Result<int64_t> PutSetting(SqlDatabase& db, const Fingerprint& fingerprint,
                           const Hash128& encoding) {
  INFERSCALE_TRY(db.Query("INSERT INTO settings(fingerprint, encoding) VALUES(?1, ?2) "
                          "ON CONFLICT(fingerprint, encoding) DO NOTHING",
                          fingerprint, encoding)
                     .Run());
  return FindSetting(db, fingerprint, encoding);
}

// Looked up every time: another process may have dropped it.
Result<int64_t> SqliteFactStore::SettingId(const Fingerprint& fingerprint,
                                           const Hash128& encoding) {
  auto known = Read([&](SqlDatabase& db) { return FindSetting(db, fingerprint, encoding); });
  if (!known || *known != 0) return known;
  return Write([&](SqlDatabase& db) { return PutSetting(db, fingerprint, encoding); });
}

Status SqliteFactStore::UseSetting(const KvSetting& setting) {
  return Write([&](SqlDatabase& db) -> Status {
    INFERSCALE_ASSIGN(const int64_t id, PutSetting(db, setting.fingerprint, setting.encoding));
    std::optional<Hash128> header;
    if (!setting.header_key.IsZero()) header = setting.header_key;
    return db
        .Query("UPDATE settings SET label = ?2, header_key = ?3, used_ms = ?4 WHERE id = ?1", id,
               setting.label, header, clock_.NowMs())
        .Run();
  });
}

Status SqliteFactStore::UseRanks(uint32_t ranks) {
  INFERSCALE_ASSIGN(const std::vector<uint32_t> known, RankCounts());
  if (std::find(known.begin(), known.end(), ranks) != known.end()) return {};
  return Write([&](SqlDatabase& db) {
    return db.Query("INSERT OR IGNORE INTO rank_counts VALUES(?1)", int64_t{ranks}).Run();
  });
}

Result<std::vector<uint32_t>> SqliteFactStore::RankCounts() {
  return Read([&](SqlDatabase& db) -> Result<std::vector<uint32_t>> {
    SqlQuery query = db.Query("SELECT ranks FROM rank_counts");
    std::vector<uint32_t> counts;
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) return counts;
      counts.push_back(static_cast<uint32_t>(query.Int(0)));
    }
  });
}

Result<std::vector<KvSetting>> SqliteFactStore::Settings() {
  return Read([&](SqlDatabase& db) -> Result<std::vector<KvSetting>> {
    SqlQuery query = db.Query(
        "SELECT fingerprint, encoding, label, header_key, used_ms, "
        "(SELECT count(*) FROM episode_kv k WHERE k.setting = s.id) "
        "FROM settings s ORDER BY used_ms DESC, id DESC");
    std::vector<KvSetting> settings;
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) return settings;
      settings.push_back({query.Hash(0), query.Hash(1), std::string(query.Text(2)), query.Hash(3),
                          query.Int(4), static_cast<uint64_t>(query.Int(5))});
    }
  });
}

Result<std::vector<Hash128>> SqliteFactStore::KeysOf(const Fingerprint& fingerprint,
                                                     const Hash128& encoding) {
  return Read([&](SqlDatabase& db) -> Result<std::vector<Hash128>> {
    INFERSCALE_ASSIGN(const int64_t id, FindSetting(db, fingerprint, encoding));
    SqlQuery query = db.Query(
        "SELECT DISTINCT kv_key FROM episode_kv k WHERE setting = ?1 AND NOT EXISTS "
        "(SELECT 1 FROM episode_kv o WHERE o.kv_key = k.kv_key AND o.setting <> ?1) UNION "
        "SELECT header_key FROM settings s WHERE id = ?1 AND header_key IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM settings o WHERE o.header_key = s.header_key AND o.id <> ?1)",
        id);
    std::vector<Hash128> keys;
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) return keys;
      keys.push_back(query.Hash(0));
    }
  });
}

Status SqliteFactStore::DropSetting(const Fingerprint& fingerprint, const Hash128& encoding) {
  return Write([&](SqlDatabase& db) -> Status {
    return db
        .Query("DELETE FROM settings WHERE fingerprint = ?1 AND encoding = ?2", fingerprint,
               encoding)
        .Run();
  });
}

Status SqliteFactStore::PutVerdict(const Hash128& id, const GateVerdict& verdict) {
  return Write([&](SqlDatabase& db) -> Status {
    return db
        .Query(
            "INSERT OR REPLACE INTO verdicts(id, passed, kl, noise_kl, agreement, "
            "noise_agreement, injected, questions, positions, at_ms, least_facts) "
            "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            id, verdict.passed, verdict.kl, verdict.noise_kl, verdict.agreement,
            verdict.noise_agreement, verdict.injected, verdict.questions, verdict.positions,
            verdict.at_ms, verdict.least_facts)
        .Run();
  });
}

Result<std::optional<GateVerdict>> SqliteFactStore::GetVerdict(const Hash128& id) {
  return Read([&](SqlDatabase& db) -> Result<std::optional<GateVerdict>> {
    SqlQuery query = db.Query(
        "SELECT passed, kl, noise_kl, agreement, noise_agreement, injected, questions, positions, "
        "at_ms, least_facts FROM verdicts WHERE id = ?1",
        id);
    INFERSCALE_ASSIGN(const bool found, query.Next());
    if (!found) return std::nullopt;
    GateVerdict verdict;
    verdict.passed = query.Int(0) != 0;
    if (!query.IsNull(1)) verdict.kl = query.Real(1);
    if (!query.IsNull(2)) verdict.noise_kl = query.Real(2);
    verdict.agreement = query.Real(3);
    verdict.noise_agreement = query.Real(4);
    verdict.injected = query.Real(5);
    verdict.questions = static_cast<uint32_t>(query.Int(6));
    verdict.positions = static_cast<uint32_t>(query.Int(7));
    verdict.at_ms = query.Int(8);
    verdict.least_facts = static_cast<uint32_t>(query.Int(9));
    return verdict;
  });
}

Result<std::vector<Fact>> SqliteFactStore::GetAnchor(const std::string& tenant,
                                                     const std::string& user, size_t size) {
  static const std::string kSql = fmt::format(
      "SELECT {} FROM anchors a JOIN anchor_facts p ON p.anchor = a.id JOIN facts f ON f.row = "
      "p.fact WHERE a.tenant = ?1 AND a.user = ?2 AND a.size = ?3 ORDER BY p.position",
      kFactColumns);
  return Read([&](SqlDatabase& db) { return ReadFacts(db.Query(kSql, tenant, user, size)); });
}

Status SqliteFactStore::PutAnchor(const std::string& tenant, const std::string& user,
                                  std::span<const std::string> fact_ids) {
  return Write([&](SqlDatabase& db) -> Status {
    INFERSCALE_TRY(db.Query("DELETE FROM anchors WHERE tenant = ?1 AND user = ?2 AND size = ?3",
                            tenant, user, fact_ids.size())
                       .Run());
    INFERSCALE_TRY(db.Query("INSERT INTO anchors SELECT NULL, ?1, ?2, ?3, count(*) FROM facts "
                            "WHERE tenant = ?1 AND user = ?2",
                            tenant, user, fact_ids.size())
                       .Run());
    const int64_t anchor = db.LastRow();
    for (size_t i = 0; i < fact_ids.size(); ++i) {
      INFERSCALE_TRY(db.Query("INSERT INTO anchor_facts SELECT ?1, ?2, row FROM facts WHERE id = "
                              "?3 AND tenant = ?4 AND user = ?5",
                              anchor, i, fact_ids[i], tenant, user)
                         .Run());
      if (db.Changes() != 1) {
        return Fail(Code::kConflict, "anchor: the user has no fact {}", fact_ids[i]);
      }
    }
    return {};
  });
}

Result<FactStore::AnchorAge> SqliteFactStore::GetAnchorAge(const std::string& tenant,
                                                           const std::string& user, size_t size) {
  return Read([&](SqlDatabase& db) -> Result<AnchorAge> {
    INFERSCALE_ASSIGN(const int64_t then,
                      db.QueryInt("SELECT facts_then FROM anchors WHERE tenant = ?1 AND user = ?2 "
                                  "AND size = ?3",
                                  tenant, user, size));
    INFERSCALE_ASSIGN(
        const int64_t now,
        db.QueryInt("SELECT count(*) FROM facts WHERE tenant = ?1 AND user = ?2", tenant, user));
    return AnchorAge{static_cast<uint64_t>(then), static_cast<uint64_t>(now)};
  });
}

}  // namespace inferscale
