#include <sys/stat.h>

#include <iterator>

#include "memory/half.h"
#include "memory/sqlite_fact_store.h"

namespace inferscale {
namespace {

uint64_t FileBytes(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

bool Alive(const Fact& fact, int64_t now_ms) {
  return !fact.expires_ms || *fact.expires_ms > now_ms;
}

}  // namespace

Fact ReadFact(const SqlQuery& query) {
  Fact fact;
  fact.row = query.Int(0);
  fact.id = query.Text(1);
  fact.scope.tenant = query.Text(2);
  fact.scope.user = query.Text(3);
  fact.scope.agent = query.Text(4);
  fact.scope.run = query.Text(5);
  fact.text = query.Text(6);
  fact.speaker = query.Text(7);
  fact.when_ms = query.MaybeInt(8);
  fact.metadata = query.Text(9);
  fact.version = static_cast<uint32_t>(query.Int(10));
  fact.created_ms = query.Int(11);
  fact.updated_ms = query.Int(12);
  fact.expires_ms = query.MaybeInt(13);
  fact.episode = query.Int(14);
  return fact;
}

Result<std::vector<Fact>> ReadFacts(SqlQuery query) {
  std::vector<Fact> facts;
  for (;;) {
    INFERSCALE_ASSIGN(const bool more, query.Next());
    if (!more) return facts;
    facts.push_back(ReadFact(query));
  }
}

std::string ScopeCondition(const Scope& scope) {
  // A field that means "any" still has its parameter, so that the others keep their numbers.
  return fmt::format("f.tenant = ?1 AND {} AND {} AND {}",
                     scope.user.empty() ? "?2 = ''" : "f.user = ?2",
                     scope.agent.empty() ? "?3 = ''" : "f.agent = ?3",
                     scope.run.empty() ? "?4 = ''" : "f.run = ?4");
}

Result<Fact> FindFact(SqlDatabase& db, const std::string& tenant, const std::string& id,
                      int64_t now_ms) {
  static const std::string kSql =
      fmt::format("SELECT {} FROM facts f WHERE f.id = ?1 AND f.tenant = ?2", kFactColumns);
  SqlQuery query = db.Query(kSql, id, tenant);
  INFERSCALE_ASSIGN(const bool found, query.Next());
  if (found) {
    Fact fact = ReadFact(query);
    if (Alive(fact, now_ms)) return fact;
  }
  return Fail(Code::kNotFound, "no fact {}", id);
}

SqliteFactStore::SqliteFactStore(const Clock& clock, FactStoreOptions options,
                                 std::unique_ptr<SqlDatabase> write,
                                 std::unique_ptr<SqlDatabase> read)
    : clock_(clock),
      options_(std::move(options)),
      writer_(std::move(write)),
      read_(std::move(read)) {}

Result<std::vector<std::string>> SqliteFactStore::FindDuplicates(std::span<const Fact> facts) {
  const int64_t now = clock_.NowMs();
  return Read([&](SqlDatabase& db) -> Result<std::vector<std::string>> {
    std::vector<std::string> ids;
    for (const Fact& fact : facts) {
      INFERSCALE_ASSIGN(std::string id, FindSame(db, SameHash(fact), now));
      ids.push_back(std::move(id));
    }
    return ids;
  });
}

Result<Fact> SqliteFactStore::Get(const std::string& tenant, const std::string& id) {
  return Read([&](SqlDatabase& db) { return FindFact(db, tenant, id, clock_.NowMs()); });
}

Result<std::vector<Fact>> SqliteFactStore::GetRows(std::span<const int64_t> rows) {
  static const std::string kSql =
      fmt::format("SELECT {} FROM facts f WHERE f.row = ?1", kFactColumns);
  const int64_t now = clock_.NowMs();
  return Read([&](SqlDatabase& db) -> Result<std::vector<Fact>> {
    std::vector<Fact> facts;
    facts.reserve(rows.size());
    for (const int64_t row : rows) {
      SqlQuery query = db.Query(kSql, row);
      INFERSCALE_ASSIGN(const bool found, query.Next());
      if (!found) continue;
      Fact fact = ReadFact(query);
      if (Alive(fact, now)) facts.push_back(std::move(fact));
    }
    return facts;
  });
}

Result<std::vector<Fact>> SqliteFactStore::List(const ListQuery& list) {
  const bool filtered = list.filter != nullptr && !list.filter->matches_all();
  const std::string sql = fmt::format(
      "SELECT {} FROM facts f WHERE {} AND (f.expires_ms IS NULL OR f.expires_ms > ?5) "
      "ORDER BY f.row {} LIMIT ?6 OFFSET ?7",
      kFactColumns, ScopeCondition(list.scope), list.newest_first ? "DESC" : "ASC");
  // A filter is applied here, and so must the limit be.
  const int64_t limit = filtered ? -1 : ClampToInt64(list.limit);
  const int64_t offset = filtered ? 0 : ClampToInt64(list.offset);
  return Read([&](SqlDatabase& db) -> Result<std::vector<Fact>> {
    const Scope& scope = list.scope;
    SqlQuery query = db.Query(sql, scope.tenant, scope.user, scope.agent, scope.run, clock_.NowMs(),
                              limit, offset);
    if (!filtered) return ReadFacts(std::move(query));
    std::vector<Fact> facts;
    size_t skip = list.offset;
    while (facts.size() < list.limit) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) break;
      Fact fact = ReadFact(query);
      if (!list.filter->Matches(fact)) continue;
      if (skip > 0) {
        --skip;
      } else {
        facts.push_back(std::move(fact));
      }
    }
    return facts;
  });
}

Result<size_t> SqliteFactStore::Count(const ListQuery& list) {
  const Scope& scope = list.scope;
  const bool filtered = list.filter != nullptr && !list.filter->matches_all();
  const std::string sql =
      fmt::format("SELECT {} FROM facts f WHERE {} AND (f.expires_ms IS NULL OR f.expires_ms > ?5)",
                  filtered ? kFactColumns : "count(*)", ScopeCondition(scope));
  return Read([&](SqlDatabase& db) -> Result<size_t> {
    SqlQuery query =
        db.Query(sql, scope.tenant, scope.user, scope.agent, scope.run, clock_.NowMs());
    size_t count = 0;
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) return count;
      if (!filtered) return static_cast<size_t>(query.Int(0));
      if (list.filter->Matches(ReadFact(query))) ++count;
    }
  });
}

Result<std::vector<std::string>> SqliteFactStore::Users(const Scope& scope) {
  return Read([&](SqlDatabase& db) -> Result<std::vector<std::string>> {
    SqlQuery query = db.Query(
        "SELECT DISTINCT f.user FROM facts f WHERE " + ScopeCondition(scope) + " ORDER BY f.user",
        scope.tenant, scope.user, scope.agent, scope.run);
    std::vector<std::string> users;
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) return users;
      users.emplace_back(query.Text(0));
    }
  });
}

Result<std::vector<FactStore::Entity>> SqliteFactStore::Entities(const std::string& tenant) {
  return Read([&](SqlDatabase& db) -> Result<std::vector<Entity>> {
    std::vector<Entity> entities;
    for (const char* type : {"user", "agent", "run"}) {
      SqlQuery query = db.Query(
          fmt::format("SELECT {0}, count(*), min(created_ms), max(updated_ms) FROM facts WHERE "
                      "tenant = ?1 AND {0} <> '' AND (expires_ms IS NULL OR expires_ms > ?2) "
                      "GROUP BY {0} ORDER BY {0}",
                      type),
          tenant, clock_.NowMs());
      for (;;) {
        INFERSCALE_ASSIGN(const bool more, query.Next());
        if (!more) break;
        entities.push_back({type, std::string(query.Text(0)), static_cast<uint64_t>(query.Int(1)),
                            query.Int(2), query.Int(3)});
      }
    }
    return entities;
  });
}

Result<std::vector<HistoryEntry>> SqliteFactStore::History(const std::string& tenant,
                                                           const std::string& id) {
  return Read([&](SqlDatabase& db) -> Result<std::vector<HistoryEntry>> {
    SqlQuery query = db.Query(
        "SELECT version, event, old_text, new_text, at_ms FROM history WHERE fact = ?1 AND "
        "tenant = ?2 ORDER BY id",
        id, tenant);
    std::vector<HistoryEntry> entries;
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) break;
      entries.push_back({id, static_cast<uint32_t>(query.Int(0)), std::string(query.Text(1)),
                         std::string(query.Text(2)), std::string(query.Text(3)), query.Int(4)});
    }
    if (entries.empty()) return Fail(Code::kNotFound, "no history of a fact {}", id);
    return entries;
  });
}

Result<Traces> SqliteFactStore::FindTraces(const Scope& scope) {
  const std::string condition = ScopeCondition(scope);
  return Read([&](SqlDatabase& db) -> Result<Traces> {
    const auto all = [&](const std::string& sql, const auto& take) -> Status {
      SqlQuery query = db.Query(sql, scope.tenant, scope.user, scope.agent, scope.run);
      for (;;) {
        INFERSCALE_ASSIGN(const bool more, query.Next());
        if (!more) return {};
        take(query);
      }
    };
    Traces traces;
    INFERSCALE_TRY(
        all("SELECT f.text, f.metadata FROM facts f WHERE " + condition, [&](const SqlQuery& row) {
          ++traces.facts;
          traces.texts.emplace_back(row.Text(0));
          if (row.Text(1) != "{}") traces.texts.emplace_back(row.Text(1));
        }));
    INFERSCALE_TRY(
        all("SELECT h.old_text FROM history h JOIN facts f ON f.id = h.fact WHERE h.old_text <> '' "
            "AND " +
                condition,
            [&](const SqlQuery& row) { traces.texts.emplace_back(row.Text(0)); }));
    INFERSCALE_TRY(all(
        "SELECT v.halves FROM vectors v JOIN facts f ON f.row = v.fact WHERE v.halves <> x'' AND " +
            condition,
        [&](const SqlQuery& row) {
          const ByteSpan bytes = row.Blob(0);
          traces.vectors.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        }));
    INFERSCALE_TRY(all(
        "SELECT DISTINCT k.kv_key FROM episode_kv k JOIN facts f ON f.episode = k.episode WHERE " +
            condition,
        [&](const SqlQuery& row) { traces.keys.push_back(row.Hash(0)); }));
    return traces;
  });
}

Status SqliteFactStore::ForEachStored(const StoredVisitor& visit) {
  return Read([&](SqlDatabase& db) -> Status {
    SqlQuery query = db.Query(
        "SELECT text, metadata FROM facts UNION ALL SELECT old_text, new_text FROM history "
        "UNION ALL SELECT halves, x'' FROM vectors");
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) return {};
      for (const int column : {0, 1}) {
        const ByteSpan bytes = query.Blob(column);
        visit({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      }
    }
  });
}

Result<int64_t> SqliteFactStore::Generation(const std::string& tenant, const std::string& user) {
  return Read([&](SqlDatabase& db) {
    return db.QueryInt("SELECT generation FROM generations WHERE owner = ?1",
                       OwnerHash(tenant, user));
  });
}

Status SqliteFactStore::ForEachAfter(const std::string& tenant, const std::string& user,
                                     int64_t row, const Hash128& embedder_id,
                                     const FactVisitor& visit) {
  static const std::string kSql = fmt::format(
      "SELECT {}, v.halves FROM facts f LEFT JOIN vectors v ON v.fact = f.row AND v.embedder = ?3 "
      "WHERE f.tenant = ?1 AND f.user = ?2 AND f.row > ?5 "
      "AND (f.expires_ms IS NULL OR f.expires_ms > ?4) ORDER BY f.row",
      kFactColumns);
  return Read([&](SqlDatabase& db) -> Status {
    SqlQuery query = db.Query(kSql, tenant, user, embedder_id, clock_.NowMs(), row);
    std::vector<float> vector;
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) return {};
      ByteReader halves(query.Blob(kFactColumnCount));
      vector.resize(halves.remaining() / sizeof(uint16_t));
      for (float& value : vector) value = HalfToFloat(halves.Read<uint16_t>());
      visit(ReadFact(query), vector);
    }
  });
}

Result<std::vector<Fact>> SqliteFactStore::WithoutVector(const Hash128& embedder_id, size_t limit) {
  // Two ranges of the index, on both sides of the embedder's own.
  static const std::string kSql = fmt::format(
      "SELECT {} FROM (SELECT fact FROM vectors WHERE embedder < ?1 UNION ALL "
      "SELECT fact FROM vectors WHERE embedder > ?1) v JOIN facts f ON f.row = v.fact "
      "WHERE f.expires_ms IS NULL OR f.expires_ms > ?2 LIMIT ?3",
      kFactColumns);
  return Read([&](SqlDatabase& db) {
    return ReadFacts(db.Query(kSql, embedder_id, clock_.NowMs(), ClampToInt64(limit)));
  });
}

Result<FactStoreStats> SqliteFactStore::Stats(const Fingerprint& fingerprint) {
  return Read([&](SqlDatabase& db) -> Result<FactStoreStats> {
    SqlQuery query = db.Query(
        "SELECT (SELECT count(*) FROM facts), "
        "(SELECT count(*) FROM (SELECT DISTINCT tenant, user FROM facts)), "
        "(SELECT count(*) FROM episodes), "
        "(SELECT count(DISTINCT e.id) FROM settings s JOIN episode_kv k ON k.setting = s.id "
        " JOIN episodes e ON e.id = k.episode WHERE s.fingerprint = ?1 AND k.covered >= e.facts), "
        "(SELECT count(*) FROM history)",
        fingerprint);
    INFERSCALE_TRY(query.Next());
    const auto count = [&](int column) { return static_cast<uint64_t>(query.Int(column)); };
    return FactStoreStats{count(0), count(1), count(2),
                          count(3), count(4), FileBytes(db.path()) + FileBytes(db.path() + "-wal")};
  });
}

Status SqliteFactStore::Compact() {
  return writer_.WithoutTransaction([&](SqlDatabase& db) -> Status {
    MutexLock read_lock(read_mutex_);
    INFERSCALE_TRY(db.Exec("VACUUM"));
    // The log can be truncated only while no other process reads from it.
    INFERSCALE_ASSIGN(const int64_t busy, db.QueryInt("PRAGMA wal_checkpoint(TRUNCATE)"));
    if (busy == 0) return {};
    return Fail(Code::kTransient, "{}: another process is using the write-ahead log", db.path());
  });
}

Status SqliteFactStore::Verify() {
  return Read([&](SqlDatabase& db) -> Status {
    SqlQuery query = db.Query("PRAGMA integrity_check(1)");
    INFERSCALE_TRY(query.Next());
    if (query.Text(0) == "ok") return {};
    // The verdict names pages and indexes, never what is in them.
    return Fail(Code::kCorrupt, "{}: {}", db.path(), query.Text(0));
  });
}

}  // namespace inferscale
