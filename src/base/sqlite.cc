#include "base/sqlite.h"

#include <sqlite3.h>

#include <functional>
#include <unordered_map>

namespace inferscale {
namespace {

Code CodeOf(int rc) {
  switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::kCorrupt;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
    case SQLITE_FULL:
    case SQLITE_CANTOPEN:
    case SQLITE_NOMEM:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_PROTOCOL:
      return Code::kTransient;
    case SQLITE_CONSTRAINT:
      return Code::kConflict;
    case SQLITE_TOOBIG:
      return Code::kInvalid;
    default:
      return Code::kInternal;
  }
}

struct SqlHash {
  using is_transparent = void;
  size_t operator()(std::string_view sql) const { return std::hash<std::string_view>{}(sql); }
};

}  // namespace

// A statement is out of the map while a query uses it, so that the same SQL may be used inside
// itself: the inner use prepares a second one.
struct SqliteDb::Statements {
  std::unordered_map<std::string, sqlite3_stmt*, SqlHash, std::equal_to<>> kept;

  ~Statements() {
    for (const auto& [sql, stmt] : kept) sqlite3_finalize(stmt);
  }
};

SqliteQuery::SqliteQuery(SqliteDb& db, std::string_view sql) : db_(&db), sql_(sql) {
  auto& kept = db.statements_->kept;
  if (const auto found = kept.find(sql); found != kept.end() && found->second != nullptr) {
    stmt_ = std::exchange(found->second, nullptr);
    sql_ = found->first;
    return;
  }
  Check(sqlite3_prepare_v3(db.db_, sql.data(), static_cast<int>(sql.size()),
                           SQLITE_PREPARE_PERSISTENT, &stmt_, nullptr));
  sql_ = kept.try_emplace(std::string(sql), nullptr).first->first;
}

SqliteQuery::SqliteQuery(SqliteQuery&& other) noexcept
    : db_(other.db_),
      sql_(other.sql_),
      stmt_(std::exchange(other.stmt_, nullptr)),
      rc_(other.rc_) {}

SqliteQuery::~SqliteQuery() {
  if (stmt_ == nullptr) return;
  sqlite3_reset(stmt_);
  sqlite3_clear_bindings(stmt_);
  sqlite3_stmt*& place = db_->statements_->kept.find(sql_)->second;
  if (place == nullptr) {
    place = stmt_;
  } else {
    sqlite3_finalize(stmt_);
  }
}

void SqliteQuery::Check(int rc) {
  if (rc_ == SQLITE_OK) rc_ = rc;
}

Result<bool> SqliteQuery::Next() {
  if (rc_ != SQLITE_OK) return db_->Failure(rc_);
  const int rc = sqlite3_step(stmt_);
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) return false;
  return db_->Failure(rc);
}

Status SqliteQuery::Run() {
  INFERSCALE_TRY(Next());
  return {};
}

int64_t SqliteQuery::Int(int column) const { return sqlite3_column_int64(stmt_, column); }
double SqliteQuery::Real(int column) const { return sqlite3_column_double(stmt_, column); }
bool SqliteQuery::IsNull(int column) const {
  return sqlite3_column_type(stmt_, column) == SQLITE_NULL;
}

std::string_view SqliteQuery::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(stmt_, column));
  if (text == nullptr) return {};
  return {text, static_cast<size_t>(sqlite3_column_bytes(stmt_, column))};
}

ByteSpan SqliteQuery::Blob(int column) const {
  const auto* bytes = static_cast<const std::byte*>(sqlite3_column_blob(stmt_, column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<size_t>(sqlite3_column_bytes(stmt_, column))};
}

std::optional<int64_t> SqliteQuery::MaybeInt(int column) const {
  if (IsNull(column)) return std::nullopt;
  return Int(column);
}

Hash128 SqliteQuery::Hash(int column) const {
  const ByteSpan bytes = Blob(column);
  if (bytes.size() != 16) return {};
  ByteReader reader(bytes);
  const auto high = reader.Read<uint64_t>();
  return {high, reader.Read<uint64_t>()};
}

void SqliteQuery::BindAt(int index, int64_t value) {
  if (stmt_ != nullptr) Check(sqlite3_bind_int64(stmt_, index, value));
}
void SqliteQuery::BindAt(int index, double value) {
  if (stmt_ != nullptr) Check(sqlite3_bind_double(stmt_, index, value));
}
void SqliteQuery::BindAt(int index, std::string_view value) {
  if (stmt_ == nullptr) return;
  // A null pointer would bind NULL, so an empty view becomes "".
  Check(sqlite3_bind_text64(stmt_, index, value.empty() ? "" : value.data(), value.size(),
                            SQLITE_TRANSIENT, SQLITE_UTF8));
}
void SqliteQuery::BindAt(int index, ByteSpan value) {
  if (stmt_ == nullptr) return;
  if (value.empty()) {
    Check(sqlite3_bind_zeroblob(stmt_, index, 0));
  } else {
    Check(sqlite3_bind_blob64(stmt_, index, value.data(), value.size(), SQLITE_TRANSIENT));
  }
}
void SqliteQuery::BindAt(int index, const Hash128& value) {
  const uint64_t words[] = {value.high, value.low};
  BindAt(index, std::as_bytes(std::span(words)));
}
void SqliteQuery::BindAt(int index, std::nullopt_t) {
  if (stmt_ != nullptr) Check(sqlite3_bind_null(stmt_, index));
}

Result<std::unique_ptr<SqliteDb>> SqliteDb::Open(const std::string& path, SqliteOptions options) {
  sqlite3* raw = nullptr;
  const int rc =
      sqlite3_open_v2(path.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<SqliteDb> db(new SqliteDb(raw, path));
  if (rc != SQLITE_OK) return db->Failure(rc);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, options.busy_timeout_ms);
  INFERSCALE_TRY(db->Exec(
      fmt::format("PRAGMA secure_delete=ON; PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY;"
                  "PRAGMA cache_size=-{}; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
                  options.cache_kib)));
  return db;
}

SqliteDb::SqliteDb(sqlite3* db, std::string path)
    : db_(db), path_(std::move(path)), statements_(std::make_unique<Statements>()) {}

SqliteDb::~SqliteDb() {
  statements_.reset();
  sqlite3_close(db_);
}

Status SqliteDb::Exec(const std::string& sql) {
  const int rc = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK) return Failure(rc);
  return {};
}

int64_t SqliteDb::LastRow() const { return sqlite3_last_insert_rowid(db_); }
int64_t SqliteDb::Changes() const { return sqlite3_changes64(db_); }

tl::unexpected<Error> SqliteDb::Failure(int rc) const {
  return Fail(CodeOf(rc), "{}: {} (SQLite code {})", path_,
              db_ == nullptr ? sqlite3_errstr(rc) : sqlite3_errmsg(db_), rc);
}

Result<SqliteTransaction> SqliteTransaction::Begin(SqliteDb& db) {
  INFERSCALE_TRY(db.Query("BEGIN IMMEDIATE").Run());
  return SqliteTransaction(db);
}

SqliteTransaction::~SqliteTransaction() {
  // Some errors (a full disk) have rolled back already; then this fails, as it may.
  if (db_ != nullptr) (void)db_->Query("ROLLBACK").Run();
}

Status SqliteTransaction::Commit() {
  INFERSCALE_TRY(db_->Query("COMMIT").Run());
  db_ = nullptr;
  return {};
}

}  // namespace inferscale
