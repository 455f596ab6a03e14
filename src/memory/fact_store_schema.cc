#include "memory/sqlite_fact_store.h"

namespace inferscale {
namespace {

constexpr int64_t kApplicationId = 0x4953464D;  // "ISFM"
constexpr int64_t kVersion = 6;

// facts.same     SameHash, to find duplicates.
// facts.bytes    of the rendered line; episodes.facts and episodes.bytes are the sums.
// history        no text of a fact that is gone.
// vectors        one row for every fact; embedder 0 if it has none, so that the index finds those.
// windows        what stood before encoded episodes; shared, since all episodes behind one anchor
//                have the same.
// anchors        of `size` facts each: window strategies that differ do not redraw each other's.
// generations    by a hash, so that no name of a user outlives the user's facts.
constexpr std::string_view kFactTables = R"sql(
CREATE TABLE episodes(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL, user TEXT NOT NULL, agent TEXT NOT NULL, run TEXT NOT NULL,
  facts INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE INDEX episodes_scope ON episodes(tenant, user, agent, run);

CREATE TABLE facts(
  row INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL, user TEXT NOT NULL, agent TEXT NOT NULL, run TEXT NOT NULL,
  text TEXT NOT NULL, speaker TEXT NOT NULL, when_ms INTEGER, metadata TEXT NOT NULL,
  version INTEGER NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
  expires_ms INTEGER,
  episode INTEGER NOT NULL REFERENCES episodes(id),
  same BLOB NOT NULL, bytes INTEGER NOT NULL);
CREATE INDEX facts_user ON facts(tenant, user);
CREATE INDEX facts_episode ON facts(episode);
CREATE INDEX facts_same ON facts(same);
CREATE INDEX facts_expires ON facts(expires_ms) WHERE expires_ms IS NOT NULL;

CREATE TABLE vectors(
  fact INTEGER PRIMARY KEY REFERENCES facts(row) ON DELETE CASCADE,
  embedder BLOB NOT NULL, halves BLOB NOT NULL);

CREATE TABLE history(
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL, fact TEXT NOT NULL, version INTEGER NOT NULL, event TEXT NOT NULL,
  old_text TEXT NOT NULL, new_text TEXT NOT NULL, at_ms INTEGER NOT NULL);
CREATE INDEX history_fact ON history(fact);

CREATE TABLE generations(owner BLOB PRIMARY KEY, generation INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE windows(id INTEGER PRIMARY KEY, content BLOB NOT NULL UNIQUE);
CREATE TABLE window_facts(
  window INTEGER NOT NULL REFERENCES windows(id) ON DELETE CASCADE,
  fact INTEGER NOT NULL, PRIMARY KEY(window, fact)) WITHOUT ROWID;
CREATE INDEX window_facts_fact ON window_facts(fact);

CREATE TABLE encode_failures(
  episode INTEGER NOT NULL REFERENCES episodes(id) ON DELETE CASCADE,
  fingerprint BLOB NOT NULL, failures INTEGER NOT NULL, retry_ms INTEGER NOT NULL,
  reason TEXT NOT NULL, PRIMARY KEY(episode, fingerprint)) WITHOUT ROWID;

CREATE TABLE kv_garbage(kv_key BLOB PRIMARY KEY) WITHOUT ROWID;
)sql";

// settings       what KV is made under: a model (fingerprint) with a window strategy and a header
//                (encoding).
// pending        the episodes whose facts are not all covered, for every setting.
constexpr std::string_view kKvTables = R"sql(
CREATE INDEX vectors_embedder ON vectors(embedder);

CREATE TABLE settings(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  fingerprint BLOB NOT NULL, encoding BLOB NOT NULL,
  label TEXT NOT NULL DEFAULT '', header_key BLOB, used_ms INTEGER NOT NULL DEFAULT 0,
  UNIQUE(fingerprint, encoding));
CREATE INDEX settings_header ON settings(header_key);

CREATE TABLE pending(
  setting INTEGER NOT NULL, episode INTEGER NOT NULL,
  PRIMARY KEY(setting, episode)) WITHOUT ROWID;

CREATE TABLE episode_kv(
  id INTEGER PRIMARY KEY,
  episode INTEGER NOT NULL REFERENCES episodes(id) ON DELETE CASCADE,
  setting INTEGER NOT NULL REFERENCES settings(id) ON DELETE CASCADE,
  kv_key BLOB NOT NULL, covered INTEGER NOT NULL, fact_tokens BLOB NOT NULL,
  window INTEGER NOT NULL REFERENCES windows(id),
  UNIQUE(episode, setting));
CREATE INDEX episode_kv_key ON episode_kv(kv_key);
CREATE INDEX episode_kv_window ON episode_kv(window);

CREATE TABLE anchors(
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, user TEXT NOT NULL, size INTEGER NOT NULL,
  facts_then INTEGER NOT NULL, UNIQUE(tenant, user, size));
CREATE TABLE anchor_facts(
  anchor INTEGER NOT NULL REFERENCES anchors(id) ON DELETE CASCADE,
  position INTEGER NOT NULL, fact INTEGER NOT NULL, PRIMARY KEY(anchor, position)) WITHOUT ROWID;
CREATE INDEX anchor_facts_fact ON anchor_facts(fact);
)sql";

// rank_counts    how many ranks keep a record together, in every engine that was ever used.
constexpr std::string_view kRankTables = R"sql(
CREATE TABLE rank_counts(ranks INTEGER PRIMARY KEY);
INSERT INTO rank_counts VALUES(1);
)sql";

// verdicts       what the quality gate measured, by everything that it depends on.
constexpr std::string_view kVerdictTable = R"sql(
CREATE TABLE verdicts(
  id BLOB PRIMARY KEY, passed INTEGER NOT NULL, kl REAL, noise_kl REAL,
  agreement REAL NOT NULL, noise_agreement REAL NOT NULL, injected REAL NOT NULL,
  questions INTEGER NOT NULL, positions INTEGER NOT NULL, at_ms INTEGER NOT NULL,
  least_facts INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
)sql";
// In versions 4 and 5 one number of facts was measured.
constexpr std::string_view kVerdictsBefore6 =
    "ALTER TABLE verdicts ADD COLUMN least_facts INTEGER NOT NULL DEFAULT 0";

// quotas         what a tenant may have; 0: any.
constexpr std::string_view kQuotaTable = R"sql(
CREATE TABLE quotas(
  tenant TEXT PRIMARY KEY, facts INTEGER NOT NULL, kv_bytes INTEGER NOT NULL,
  encode_tokens INTEGER NOT NULL) WITHOUT ROWID;
)sql";

// Keep kv_garbage exact whatever the reason for which a key's row goes: a key is garbage from the
// moment when the last row that refers to it goes until one refers to it again. And keep pending
// exact whatever changes an episode, its KV or the settings.
constexpr std::string_view kTriggers = R"sql(
CREATE TRIGGER kv_gone AFTER DELETE ON episode_kv BEGIN
  INSERT OR IGNORE INTO kv_garbage SELECT old.kv_key
    WHERE NOT EXISTS (SELECT 1 FROM episode_kv WHERE kv_key = old.kv_key);
  DELETE FROM windows WHERE id = old.window
    AND NOT EXISTS (SELECT 1 FROM episode_kv WHERE window = old.window);
  INSERT OR IGNORE INTO pending SELECT old.setting, old.episode
    WHERE EXISTS (SELECT 1 FROM settings WHERE id = old.setting)
    AND EXISTS (SELECT 1 FROM episodes WHERE id = old.episode);
END;
CREATE TRIGGER kv_put AFTER INSERT ON episode_kv BEGIN
  DELETE FROM kv_garbage WHERE kv_key = new.kv_key;
  DELETE FROM pending WHERE setting = new.setting AND episode = new.episode
    AND new.covered >= (SELECT facts FROM episodes WHERE id = new.episode);
END;

CREATE TRIGGER episode_made AFTER INSERT ON episodes BEGIN
  INSERT INTO pending SELECT id, new.id FROM settings;
END;
CREATE TRIGGER episode_resized AFTER UPDATE OF facts ON episodes WHEN new.facts <> old.facts BEGIN
  INSERT OR IGNORE INTO pending SELECT id, new.id FROM settings;
  DELETE FROM pending WHERE episode = new.id AND setting IN
    (SELECT setting FROM episode_kv WHERE episode = new.id AND covered >= new.facts);
END;
CREATE TRIGGER episode_gone AFTER DELETE ON episodes BEGIN
  DELETE FROM pending WHERE episode = old.id AND setting IN (SELECT id FROM settings);
END;

CREATE TRIGGER setting_made AFTER INSERT ON settings BEGIN
  INSERT INTO pending SELECT new.id, id FROM episodes;
END;
CREATE TRIGGER setting_header AFTER UPDATE OF header_key ON settings BEGIN
  DELETE FROM kv_garbage WHERE kv_key = new.header_key;
END;
CREATE TRIGGER setting_gone AFTER DELETE ON settings BEGIN
  DELETE FROM pending WHERE setting = old.id;
  INSERT OR IGNORE INTO kv_garbage SELECT old.header_key WHERE old.header_key IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM settings WHERE header_key = old.header_key);
END;
)sql";

// In version 1 an episode had one record for a model whatever its encoding, a user one anchor, and
// a fact without a vector no row in vectors.
constexpr std::string_view kBefore2 = R"sql(
DROP TRIGGER kv_gone;
DROP TRIGGER kv_put;
DROP INDEX episode_kv_key;
DROP INDEX episode_kv_window;
ALTER TABLE episode_kv RENAME TO episode_kv_1;
DROP TABLE anchor_facts;
DROP TABLE anchors;
INSERT INTO vectors SELECT row, zeroblob(16), x'' FROM facts
  WHERE row NOT IN (SELECT fact FROM vectors);
)sql";
constexpr std::string_view kAfter2 = R"sql(
INSERT INTO settings(fingerprint, encoding) SELECT DISTINCT fingerprint, encoding FROM episode_kv_1;
INSERT INTO episode_kv SELECT k.id, k.episode, s.id, k.kv_key, k.covered, k.fact_tokens, k.window
  FROM episode_kv_1 k JOIN settings s ON s.fingerprint = k.fingerprint AND s.encoding = k.encoding;
DROP TABLE episode_kv_1;
)sql";

Status CheckApplication(SqlDatabase& db, int64_t version) {
  INFERSCALE_ASSIGN(const int64_t application, db.QueryInt("PRAGMA application_id"));
  if (application != kApplicationId) {
    return Fail(Code::kCorrupt, "{}: not a memory database", db.path());
  }
  if (version > kVersion) {
    return Fail(Code::kCorrupt, "{}: written by a newer version (schema {}, this one knows {})",
                db.path(), version, kVersion);
  }
  return {};
}

}  // namespace

Status PrepareSchema(SqlDatabase& db) {
  INFERSCALE_ASSIGN(SqlTransaction transaction, SqlTransaction::Begin(db));
  INFERSCALE_ASSIGN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  INFERSCALE_ASSIGN(const int64_t tables, db.QueryInt("SELECT count(*) FROM sqlite_schema"));
  std::vector<std::string_view> steps;
  if (version == 0 && tables == 0) {
    steps = {kFactTables, kKvTables, kTriggers, kRankTables, kVerdictTable, kQuotaTable};
  } else {
    INFERSCALE_TRY(CheckApplication(db, version));
    if (version == kVersion) return {};
    if (version < 2) steps = {kBefore2, kKvTables, kTriggers, kAfter2};
    if (version < 3) steps.push_back(kRankTables);
    steps.push_back(version < 4 ? kVerdictTable : kVerdictsBefore6);
    if (version < 5) steps.push_back(kQuotaTable);
  }
  for (const std::string_view step : steps) INFERSCALE_TRY(db.Exec(std::string(step)));
  INFERSCALE_TRY(db.Exec(
      fmt::format("PRAGMA application_id={}; PRAGMA user_version={}", kApplicationId, kVersion)));
  return transaction.Commit();
}

Result<std::unique_ptr<FactStore>> FactStore::Open(const Clock& clock, FactStoreOptions options) {
  if (options.episode_facts == 0) return Fail(Code::kInvalid, "episode_facts is 0");
  INFERSCALE_TRY(CreatePrivateFile(options.path));
  INFERSCALE_ASSIGN(auto write, SqlDatabase::Open(options.path, {}));
  INFERSCALE_TRY(PrepareSchema(*write));
  // What a call changes: rows of facts, and episodes. Empty between calls.
  INFERSCALE_TRY(
      write->Exec("CREATE TEMP TABLE changed(row INTEGER PRIMARY KEY);"
                  "CREATE TEMP TABLE touched(episode INTEGER PRIMARY KEY);"));
  INFERSCALE_ASSIGN(auto read, SqlDatabase::Open(options.path, {}));
  return std::make_unique<SqliteFactStore>(clock, std::move(options), std::move(write),
                                           std::move(read));
}

}  // namespace inferscale
