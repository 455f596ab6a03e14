#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "memory/sqlite_fact_store.h"

namespace inferscale {
namespace {

constexpr int64_t kApplicationId = 0x4953464D;  // "ISFM"
constexpr int64_t kVersion = 1;

// facts.same     SameHash, to find duplicates.
// facts.bytes    of the rendered line; episodes.facts and episodes.bytes are the sums.
// history        no text of a fact that is gone.
// windows        what stood before encoded episodes; shared, since all episodes behind one anchor
//                have the same.
// generations    by a hash, so that no name of a user outlives the user's facts.
//
// The triggers keep kv_garbage exact whatever the reason for which a row of episode_kv goes: a key
// is garbage from the moment when the last row that refers to it goes until one refers to it again.
constexpr std::string_view kSchema = R"sql(
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

CREATE TABLE episode_kv(
  id INTEGER PRIMARY KEY,
  episode INTEGER NOT NULL REFERENCES episodes(id) ON DELETE CASCADE,
  fingerprint BLOB NOT NULL, kv_key BLOB NOT NULL, covered INTEGER NOT NULL,
  fact_tokens BLOB NOT NULL, encoding BLOB NOT NULL,
  window INTEGER NOT NULL REFERENCES windows(id),
  UNIQUE(episode, fingerprint));
CREATE INDEX episode_kv_key ON episode_kv(kv_key);
CREATE INDEX episode_kv_window ON episode_kv(window);

CREATE TABLE encode_failures(
  episode INTEGER NOT NULL REFERENCES episodes(id) ON DELETE CASCADE,
  fingerprint BLOB NOT NULL, failures INTEGER NOT NULL, retry_ms INTEGER NOT NULL,
  reason TEXT NOT NULL, PRIMARY KEY(episode, fingerprint)) WITHOUT ROWID;

CREATE TABLE kv_garbage(kv_key BLOB PRIMARY KEY) WITHOUT ROWID;

CREATE TABLE anchors(
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, user TEXT NOT NULL, facts_then INTEGER NOT NULL,
  UNIQUE(tenant, user));
CREATE TABLE anchor_facts(
  anchor INTEGER NOT NULL REFERENCES anchors(id) ON DELETE CASCADE,
  position INTEGER NOT NULL, fact INTEGER NOT NULL, PRIMARY KEY(anchor, position)) WITHOUT ROWID;
CREATE INDEX anchor_facts_fact ON anchor_facts(fact);

CREATE TRIGGER kv_gone AFTER DELETE ON episode_kv BEGIN
  INSERT OR IGNORE INTO kv_garbage SELECT old.kv_key
    WHERE NOT EXISTS (SELECT 1 FROM episode_kv WHERE kv_key = old.kv_key);
  DELETE FROM windows WHERE id = old.window
    AND NOT EXISTS (SELECT 1 FROM episode_kv WHERE window = old.window);
END;
CREATE TRIGGER kv_put AFTER INSERT ON episode_kv BEGIN
  DELETE FROM kv_garbage WHERE kv_key = new.kv_key;
END;
)sql";

// The text of users is nobody else's business: the file, and with it the log that SQLite makes
// beside it, is for its owner only.
Status CreatePrivately(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return Fail(Code::kTransient, "{}: {}", path, std::strerror(errno));
  ::close(fd);
  return {};
}

Status CheckSchema(SqlDatabase& db, int64_t version) {
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
  if (version != 0 || tables != 0) return CheckSchema(db, version);
  INFERSCALE_TRY(db.Exec(std::string(kSchema)));
  INFERSCALE_TRY(db.Exec(
      fmt::format("PRAGMA application_id={}; PRAGMA user_version={}", kApplicationId, kVersion)));
  return transaction.Commit();
}

Result<std::unique_ptr<FactStore>> FactStore::Open(const Clock& clock, FactStoreOptions options) {
  if (options.episode_facts == 0) return Fail(Code::kInvalid, "episode_facts is 0");
  INFERSCALE_TRY(CreatePrivately(options.path));
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
