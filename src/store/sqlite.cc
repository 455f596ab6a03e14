#include "store/sqlite.h"

#include <sqlite3.h>

#include <array>
#include <cstring>

namespace inferscale {
namespace {

constexpr int kBusyTimeoutMs = 10'000;

Code CodeOf(int rc) {
  switch (rc & 0xFF) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::kCorrupt;
    case SQLITE_ERROR:
    case SQLITE_INTERNAL:
    case SQLITE_MISUSE:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_RANGE:
      return Code::kInternal;
    default:  // busy, full, I/O, permissions, memory: another time it may work
      return Code::kTransient;
  }
}

tl::unexpected<Error> SqliteError(sqlite3* db, const std::string& path, int rc) {
  return Fail(CodeOf(rc), "{}: {}", path, db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

}  // namespace

SqliteQuery::~SqliteQuery() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

SqliteQuery& SqliteQuery::Bind(uint64_t value) {
  sqlite3_bind_int64(statement_, ++bound_, static_cast<sqlite3_int64>(value));
  return *this;
}

SqliteQuery& SqliteQuery::Bind(std::string_view text) {
  // A null pointer would bind NULL; an empty name is still a name.
  sqlite3_bind_text(statement_, ++bound_, text.empty() ? "" : text.data(),
                    static_cast<int>(text.size()), SQLITE_TRANSIENT);
  return *this;
}

SqliteQuery& SqliteQuery::Bind(const Hash128& hash) {
  const std::array<uint64_t, 2> words{hash.high, hash.low};
  sqlite3_bind_blob(statement_, ++bound_, words.data(), sizeof(words), SQLITE_TRANSIENT);
  return *this;
}

Result<bool> SqliteQuery::Step() {
  const int rc = sqlite3_step(statement_);
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) return false;
  return SqliteError(sqlite3_db_handle(statement_), path_, rc);
}

Status SqliteQuery::Run() {
  while (true) {
    INFERSCALE_ASSIGN(const bool row, Step());
    if (!row) return {};
  }
}

uint64_t SqliteQuery::Int(int column) const {
  return static_cast<uint64_t>(sqlite3_column_int64(statement_, column));
}

std::string SqliteQuery::Text(int column) const {
  const unsigned char* text = sqlite3_column_text(statement_, column);
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
  return text == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(text), size);
}

Hash128 SqliteQuery::Hash(int column) const {
  std::array<uint64_t, 2> words{};
  const void* blob = sqlite3_column_blob(statement_, column);
  if (blob != nullptr && sqlite3_column_bytes(statement_, column) == sizeof(words)) {
    std::memcpy(words.data(), blob, sizeof(words));
  }
  return {words[0], words[1]};
}

Result<std::unique_ptr<Sqlite>> Sqlite::Open(const std::string& path) {
  sqlite3* raw = nullptr;
  const int rc =
      sqlite3_open_v2(path.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Sqlite> db(new Sqlite(raw, path));
  if (rc != SQLITE_OK) return SqliteError(raw, path, rc);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  return db;
}

Sqlite::~Sqlite() {
  Forget();
  sqlite3_close(db_);
}

void Sqlite::Forget() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  statements_.clear();
}

Status Sqlite::Exec(const char* sql) {
  const int rc = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK) return SqliteError(db_, path_, rc);
  return {};
}

Result<std::unique_ptr<SqliteQuery>> Sqlite::Query(const char* sql) {
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr) {
    const int rc = sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (rc != SQLITE_OK) return SqliteError(db_, path_, rc);
  }
  return std::make_unique<SqliteQuery>(statement, path_);
}

uint64_t Sqlite::changes() const { return static_cast<uint64_t>(sqlite3_changes64(db_)); }

Status Sqlite::Reset() {
  Forget();
  sqlite3_db_config(db_, SQLITE_DBCONFIG_RESET_DATABASE, 1, nullptr);
  const Status emptied = Exec("VACUUM");
  sqlite3_db_config(db_, SQLITE_DBCONFIG_RESET_DATABASE, 0, nullptr);
  return emptied;
}

Result<std::unique_ptr<SqliteTransaction>> SqliteTransaction::Begin(Sqlite& db) {
  INFERSCALE_TRY(db.Exec("BEGIN IMMEDIATE"));
  return std::unique_ptr<SqliteTransaction>(new SqliteTransaction(db));
}

SqliteTransaction::~SqliteTransaction() {
  // Fails where SQLite itself rolled back already.
  if (open_) (void)db_.Exec("ROLLBACK");
}

Status SqliteTransaction::Commit() {
  INFERSCALE_TRY(db_.Exec("COMMIT"));
  open_ = false;
  return {};
}

}  // namespace inferscale
