#include <algorithm>
#include <boost/json.hpp>

#include "memory/sqlite_fact_store.h"

namespace inferscale {
namespace {

constexpr int64_t kFirstRetryMs = 1'000;
constexpr int64_t kLastRetryMs = 3'600'000;

Hash128 WindowHash(const std::vector<int64_t>& rows, const std::vector<uint32_t>& versions) {
  Hasher hasher;
  for (size_t i = 0; i < rows.size(); ++i) {
    hasher.Add(static_cast<uint64_t>(rows[i])).Add(uint64_t{versions[i]});
  }
  return hasher.Digest();
}

Status CheckShape(const EncodedEpisode& encoded) {
  const EpisodeKv& kv = encoded.kv;
  const bool fits = kv.covered > 0 && kv.covered == kv.fact_tokens.size() &&
                    kv.covered <= encoded.fact_ids.size() &&
                    encoded.fact_ids.size() == encoded.fact_versions.size() &&
                    encoded.window_ids.size() == encoded.window_versions.size();
  if (fits) return {};
  return Fail(Code::kInvalid,
              "episode {}: KV covers {} facts with {} token counts; {} fact ids, {} versions; {} "
              "window ids, {} versions",
              kv.episode, kv.covered, kv.fact_tokens.size(), encoded.fact_ids.size(),
              encoded.fact_versions.size(), encoded.window_ids.size(),
              encoded.window_versions.size());
}

// The first facts of the episode must be what they were.
Status CheckFactsUnchanged(SqlDatabase& db, const EncodedEpisode& encoded) {
  SqlQuery query =
      db.Query("SELECT id, version FROM facts WHERE episode = ?1 ORDER BY row", encoded.kv.episode);
  for (size_t i = 0; i < encoded.fact_ids.size(); ++i) {
    INFERSCALE_ASSIGN(const bool more, query.Next());
    if (!more || query.Text(0) != encoded.fact_ids[i] ||
        query.Int(1) != int64_t{encoded.fact_versions[i]}) {
      return Fail(Code::kConflict, "episode {}: its facts have changed since it was encoded",
                  encoded.kv.episode);
    }
  }
  return {};
}

// The window's rows, if its facts are what they were and of the episode's tenant.
Result<std::vector<int64_t>> CheckWindowUnchanged(SqlDatabase& db, const EncodedEpisode& encoded) {
  std::vector<int64_t> rows;
  for (size_t i = 0; i < encoded.window_ids.size(); ++i) {
    SqlQuery query = db.Query(
        "SELECT f.row FROM facts f JOIN episodes e ON e.tenant = f.tenant "
        "WHERE f.id = ?1 AND f.version = ?2 AND e.id = ?3",
        encoded.window_ids[i], encoded.window_versions[i], encoded.kv.episode);
    INFERSCALE_ASSIGN(const bool found, query.Next());
    if (!found) {
      return Fail(Code::kConflict, "episode {}: its window has changed since it was encoded",
                  encoded.kv.episode);
    }
    rows.push_back(query.Int(0));
  }
  return rows;
}

Result<int64_t> PutWindow(SqlDatabase& db, const std::vector<int64_t>& rows,
                          const std::vector<uint32_t>& versions) {
  const Hash128 content = WindowHash(rows, versions);
  INFERSCALE_TRY(db.Query("INSERT OR IGNORE INTO windows VALUES(NULL, ?1)", content).Run());
  const bool is_new = db.Changes() == 1;
  INFERSCALE_ASSIGN(const int64_t window,
                    db.QueryInt("SELECT id FROM windows WHERE content = ?1", content));
  if (!is_new) return window;
  for (const int64_t row : rows) {
    INFERSCALE_TRY(
        db.Query("INSERT OR IGNORE INTO window_facts VALUES(?1, ?2)", window, row).Run());
  }
  return window;
}

EpisodeKv ReadKv(const SqlQuery& query, int64_t episode, const Hash128& encoding) {
  EpisodeKv kv;
  kv.episode = episode;
  kv.key = query.Hash(0);
  kv.covered = static_cast<uint32_t>(query.Int(1));
  kv.encoding = encoding;
  ByteReader counts(query.Blob(2));
  kv.fact_tokens.resize(counts.remaining() / sizeof(uint32_t));
  for (uint32_t& count : kv.fact_tokens) count = counts.Read<uint32_t>();
  return kv;
}

}  // namespace

Result<std::vector<Episode>> SqliteFactStore::GetEpisodes(std::span<const int64_t> ids) {
  static const std::string kSql =
      fmt::format("SELECT {} FROM facts f WHERE f.episode = ?1 ORDER BY f.row", kFactColumns);
  return Read([&](SqlDatabase& db) -> Result<std::vector<Episode>> {
    std::vector<Episode> episodes;
    for (const int64_t id : ids) {
      INFERSCALE_ASSIGN(std::vector<Fact> facts, ReadFacts(db.Query(kSql, id)));
      if (facts.empty()) continue;
      Scope scope = facts.front().scope;
      episodes.push_back({id, std::move(scope), std::move(facts)});
    }
    return episodes;
  });
}

Result<std::vector<Fact>> SqliteFactStore::FactsBefore(int64_t episode, size_t count) {
  static const std::string kSql = fmt::format(
      "SELECT {} FROM episodes e JOIN episodes b ON b.tenant = e.tenant AND b.user = e.user AND "
      "b.agent = e.agent AND b.run = e.run AND b.id < e.id JOIN facts f ON f.episode = b.id "
      "WHERE e.id = ?1 AND (f.expires_ms IS NULL OR f.expires_ms > ?2) "
      "ORDER BY b.id DESC, f.row DESC LIMIT ?3",
      kFactColumns);
  INFERSCALE_ASSIGN(
      std::vector<Fact> facts, Read([&](SqlDatabase& db) {
        return ReadFacts(db.Query(kSql, episode, clock_.NowMs(), ClampToInt64(count)));
      }));
  std::ranges::reverse(facts);
  return facts;
}

Result<std::vector<EpisodeKv>> SqliteFactStore::GetKv(std::span<const int64_t> episodes,
                                                      const Fingerprint& fingerprint,
                                                      const Hash128& encoding) {
  return Read([&](SqlDatabase& db) -> Result<std::vector<EpisodeKv>> {
    INFERSCALE_ASSIGN(const int64_t setting, FindSetting(db, fingerprint, encoding));
    std::vector<EpisodeKv> known;
    for (const int64_t episode : episodes) {
      SqlQuery query = db.Query(
          "SELECT kv_key, covered, fact_tokens FROM episode_kv WHERE episode = ?1 AND setting = ?2",
          episode, setting);
      INFERSCALE_ASSIGN(const bool found, query.Next());
      if (found) known.push_back(ReadKv(query, episode, encoding));
    }
    return known;
  });
}

Result<std::vector<int64_t>> SqliteFactStore::PendingEpisodes(const Fingerprint& fingerprint,
                                                              const Hash128& encoding,
                                                              const PendingQuery& query) {
  INFERSCALE_ASSIGN(const int64_t setting, SettingId(fingerprint, encoding));
  // An episode can't grow any more if it is full or a later one of its scope has begun.
  constexpr std::string_view kSql =
      "SELECT e.id FROM pending p JOIN episodes e ON e.id = p.episode "
      "WHERE p.setting = ?1 AND p.episode > ?2 "
      "AND NOT EXISTS (SELECT 1 FROM encode_failures x WHERE x.episode = e.id AND x.fingerprint = "
      "?3 AND x.retry_ms > ?4) "
      "AND (e.facts >= ?6 OR e.bytes >= ?7 OR EXISTS (SELECT 1 FROM episodes n WHERE "
      "n.tenant = e.tenant AND n.user = e.user AND n.agent = e.agent AND n.run = e.run AND n.id > "
      "e.id) OR NOT EXISTS (SELECT 1 FROM facts f WHERE f.episode = e.id AND f.created_ms > ?5)) "
      "AND e.tenant NOT IN (SELECT value FROM json_each(?9)) "
      "AND (NOT ?10 OR e.tenant = ?11 AND e.user = ?12) ORDER BY p.episode LIMIT ?8";
  const std::string none_of =
      boost::json::serialize(boost::json::array(query.without.begin(), query.without.end()));
  const Scope of = query.of == nullptr ? Scope{} : *query.of;
  return Read([&](SqlDatabase& db) -> Result<std::vector<int64_t>> {
    SqlQuery rows =
        db.Query(kSql, setting, query.after, fingerprint, clock_.NowMs(), query.grown_ms,
                 options_.episode_facts, options_.max_episode_bytes, ClampToInt64(query.limit),
                 none_of, query.of != nullptr, of.tenant, of.user);
    std::vector<int64_t> ids;
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, rows.Next());
      if (!more) return ids;
      ids.push_back(rows.Int(0));
    }
  });
}

Result<uint64_t> SqliteFactStore::CountPending(const Fingerprint& fingerprint,
                                               const Hash128& encoding) {
  INFERSCALE_ASSIGN(const int64_t setting, SettingId(fingerprint, encoding));
  return Read([&](SqlDatabase& db) -> Result<uint64_t> {
    INFERSCALE_ASSIGN(const int64_t count,
                      db.QueryInt("SELECT count(*) FROM pending WHERE setting = ?1", setting));
    return static_cast<uint64_t>(count);
  });
}

Status SqliteFactStore::PutKv(const Fingerprint& fingerprint, const EncodedEpisode& encoded) {
  INFERSCALE_TRY(CheckShape(encoded));
  const EpisodeKv& kv = encoded.kv;
  return Write([&](SqlDatabase& db) -> Status {
    INFERSCALE_TRY(CheckFactsUnchanged(db, encoded));
    INFERSCALE_ASSIGN(const std::vector<int64_t> rows, CheckWindowUnchanged(db, encoded));
    INFERSCALE_ASSIGN(const int64_t setting, PutSetting(db, fingerprint, kv.encoding));
    INFERSCALE_TRY(
        db.Query("DELETE FROM episode_kv WHERE episode = ?1 AND setting = ?2", kv.episode, setting)
            .Run());
    INFERSCALE_ASSIGN(const int64_t window, PutWindow(db, rows, encoded.window_versions));
    INFERSCALE_TRY(db.Query("INSERT INTO episode_kv VALUES(NULL, ?1, ?2, ?3, ?4, ?5, ?6)",
                            kv.episode, setting, kv.key, kv.covered,
                            std::as_bytes(std::span(kv.fact_tokens)), window)
                       .Run());
    return db
        .Query("DELETE FROM encode_failures WHERE episode = ?1 AND fingerprint = ?2", kv.episode,
               fingerprint)
        .Run();
  });
}

Status SqliteFactStore::ForgetKv(std::span<const Hash128> keys) {
  return Write([&](SqlDatabase& db) -> Status {
    for (const Hash128& key : keys) {
      INFERSCALE_TRY(db.Query("DELETE FROM episode_kv WHERE kv_key = ?1", key).Run());
    }
    return {};
  });
}

Status SqliteFactStore::PutEncodeFailure(const Fingerprint& fingerprint, int64_t episode,
                                         const std::string& reason) {
  return Write([&](SqlDatabase& db) -> Status {
    INFERSCALE_ASSIGN(const int64_t failures,
                      db.QueryInt("SELECT failures FROM encode_failures WHERE episode = ?1 AND "
                                  "fingerprint = ?2",
                                  episode, fingerprint));
    const int64_t wait = std::min(kLastRetryMs, kFirstRetryMs << std::min<int64_t>(failures, 20));
    // An episode that has gone meanwhile needs no entry.
    return db
        .Query(
            "INSERT OR REPLACE INTO encode_failures SELECT id, ?2, ?3, ?4, ?5 FROM episodes "
            "WHERE id = ?1",
            episode, fingerprint, failures + 1, clock_.NowMs() + wait, reason)
        .Run();
  });
}

Result<std::vector<Hash128>> SqliteFactStore::Garbage(size_t limit) {
  return Read([&](SqlDatabase& db) -> Result<std::vector<Hash128>> {
    SqlQuery query = db.Query("SELECT kv_key FROM kv_garbage LIMIT ?1", ClampToInt64(limit));
    std::vector<Hash128> keys;
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) return keys;
      keys.push_back(query.Hash(0));
    }
  });
}

Status SqliteFactStore::ClearGarbage(std::span<const Hash128> keys) {
  return Write([&](SqlDatabase& db) -> Status {
    for (const Hash128& key : keys) {
      INFERSCALE_TRY(db.Query("DELETE FROM kv_garbage WHERE kv_key = ?1", key).Run());
    }
    return {};
  });
}

Result<bool> SqliteFactStore::IsReferenced(const Hash128& key) {
  return Read([&](SqlDatabase& db) -> Result<bool> {
    INFERSCALE_ASSIGN(const int64_t any,
                      db.QueryInt("SELECT EXISTS (SELECT 1 FROM episode_kv WHERE kv_key = ?1) OR "
                                  "EXISTS (SELECT 1 FROM settings WHERE header_key = ?1)",
                                  key));
    return any != 0;
  });
}

}  // namespace inferscale
