#include "base/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <unordered_map>

namespace inferscale {
namespace {

Code CodeOf(int rc) {
  switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::kCorrupt;
    case SQLITE_ERROR:
    case SQLITE_INTERNAL:
    case SQLITE_MISUSE:
    case SQLITE_MISMATCH:
    case SQLITE_RANGE:
      return Code::kInternal;
    case SQLITE_CONSTRAINT:
      return Code::kConflict;
    case SQLITE_TOOBIG:
      return Code::kInvalid;
    default:  // busy, full, I/O, permissions, memory: another time it may work
      return Code::kTransient;
  }
}

struct SqlHash {
  using is_transparent = void;
  size_t operator()(std::string_view sql) const { return std::hash<std::string_view>{}(sql); }
};

}  // namespace

// A statement is out of the map while a query uses it, so that the same SQL may be used inside
// itself: the inner use prepares a second one.
struct SqlDatabase::Statements {
  std::unordered_map<std::string, sqlite3_stmt*, SqlHash, std::equal_to<>> kept;

  ~Statements() {
    for (const auto& [sql, stmt] : kept) sqlite3_finalize(stmt);
  }
};

SqlQuery::SqlQuery(SqlDatabase& db, std::string_view sql) : db_(&db), sql_(sql) {
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

SqlQuery::SqlQuery(SqlQuery&& other) noexcept
    : db_(other.db_),
      sql_(other.sql_),
      stmt_(std::exchange(other.stmt_, nullptr)),
      rc_(other.rc_) {}

SqlQuery::~SqlQuery() {
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

void SqlQuery::Check(int rc) {
  if (rc_ == SQLITE_OK) rc_ = rc;
}

Result<bool> SqlQuery::Next() {
  if (rc_ != SQLITE_OK) return db_->Failure(rc_);
  const int rc = sqlite3_step(stmt_);
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) return false;
  return db_->Failure(rc);
}

Status SqlQuery::Run() {
  INFERSCALE_TRY(Next());
  return {};
}

int64_t SqlQuery::Int(int column) const { return sqlite3_column_int64(stmt_, column); }
double SqlQuery::Real(int column) const { return sqlite3_column_double(stmt_, column); }
bool SqlQuery::IsNull(int column) const {
  return sqlite3_column_type(stmt_, column) == SQLITE_NULL;
}

std::string_view SqlQuery::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(stmt_, column));
  if (text == nullptr) return {};
  return {text, static_cast<size_t>(sqlite3_column_bytes(stmt_, column))};
}

ByteSpan SqlQuery::Blob(int column) const {
  const auto* bytes = static_cast<const std::byte*>(sqlite3_column_blob(stmt_, column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<size_t>(sqlite3_column_bytes(stmt_, column))};
}

std::optional<int64_t> SqlQuery::MaybeInt(int column) const {
  if (IsNull(column)) return std::nullopt;
  return Int(column);
}

Hash128 SqlQuery::Hash(int column) const {
  const ByteSpan bytes = Blob(column);
  if (bytes.size() != 16) return {};
  ByteReader reader(bytes);
  const auto high = reader.Read<uint64_t>();
  return {high, reader.Read<uint64_t>()};
}

void SqlQuery::BindAt(int index, int64_t value) {
  if (stmt_ != nullptr) Check(sqlite3_bind_int64(stmt_, index, value));
}
void SqlQuery::BindAt(int index, double value) {
  if (stmt_ != nullptr) Check(sqlite3_bind_double(stmt_, index, value));
}
void SqlQuery::BindAt(int index, std::string_view value) {
  if (stmt_ == nullptr) return;
  // A null pointer would bind NULL, so an empty view becomes "".
  Check(sqlite3_bind_text64(stmt_, index, value.empty() ? "" : value.data(), value.size(),
                            SQLITE_TRANSIENT, SQLITE_UTF8));
}
void SqlQuery::BindAt(int index, ByteSpan value) {
  if (stmt_ == nullptr) return;
  if (value.empty()) {
    Check(sqlite3_bind_zeroblob(stmt_, index, 0));
  } else {
    Check(sqlite3_bind_blob64(stmt_, index, value.data(), value.size(), SQLITE_TRANSIENT));
  }
}
void SqlQuery::BindAt(int index, const Hash128& value) {
  const uint64_t words[] = {value.high, value.low};
  BindAt(index, std::as_bytes(std::span(words)));
}
void SqlQuery::BindAt(int index, std::nullopt_t) {
  if (stmt_ != nullptr) Check(sqlite3_bind_null(stmt_, index));
}

Result<std::unique_ptr<SqlDatabase>> SqlDatabase::Open(const std::string& path,
                                                       SqlOptions options) {
  INFERSCALE_ASSIGN(auto db, OpenFile(path));
  INFERSCALE_TRY(db->Configure(options));
  return db;
}

Result<std::unique_ptr<SqlDatabase>> SqlDatabase::Reset(const std::string& path,
                                                        SqlOptions options) {
  INFERSCALE_ASSIGN(auto db, OpenFile(path));
  // May fail, but has then looked at the file, so that a write-ahead log of others stays one.
  (void)db->Configure(options);
  sqlite3_db_config(db->db_, SQLITE_DBCONFIG_RESET_DATABASE, 1, nullptr);
  const Status emptied = db->Exec("VACUUM");
  sqlite3_db_config(db->db_, SQLITE_DBCONFIG_RESET_DATABASE, 0, nullptr);
  INFERSCALE_TRY(emptied);
  INFERSCALE_TRY(db->Configure(options));
  return db;
}

Result<std::unique_ptr<SqlDatabase>> SqlDatabase::OpenFile(const std::string& path) {
  sqlite3* raw = nullptr;
  const int rc =
      sqlite3_open_v2(path.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<SqlDatabase> db(new SqlDatabase(raw, path));
  if (rc != SQLITE_OK) return db->Failure(rc);
  sqlite3_extended_result_codes(raw, 1);
  return db;
}

Status SqlDatabase::Configure(SqlOptions options) {
  sqlite3_busy_timeout(db_, options.busy_timeout_ms);
  return Exec(
      fmt::format("PRAGMA secure_delete=ON; PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY;"
                  "PRAGMA cache_size=-{}; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
                  options.cache_kib));
}

SqlDatabase::SqlDatabase(sqlite3* db, std::string path)
    : db_(db), path_(std::move(path)), statements_(std::make_unique<Statements>()) {}

SqlDatabase::~SqlDatabase() {
  statements_.reset();
  sqlite3_close(db_);
}

Status SqlDatabase::Exec(const std::string& sql) {
  const int rc = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK) return Failure(rc);
  return {};
}

Status SqlDatabase::CopyTo(const std::string& path) {
  INFERSCALE_TRY(CreatePrivateFile(path));
  INFERSCALE_TRY(Query("VACUUM INTO ?1", path).Run());
  // SQLite leaves that to the system.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!synced) return Fail(Code::kTransient, "{}: {}", path, std::strerror(error));
  return {};
}

int64_t SqlDatabase::LastRow() const { return sqlite3_last_insert_rowid(db_); }
int64_t SqlDatabase::Changes() const { return sqlite3_changes64(db_); }

tl::unexpected<Error> SqlDatabase::Failure(int rc) const {
  return Fail(CodeOf(rc), "{}: {} (SQLite code {})", path_,
              db_ == nullptr ? sqlite3_errstr(rc) : sqlite3_errmsg(db_), rc);
}

Status CreatePrivateFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return Fail(Code::kTransient, "{}: {}", path, std::strerror(errno));
  ::close(fd);
  return {};
}

Result<SqlTransaction> SqlTransaction::Begin(SqlDatabase& db) {
  INFERSCALE_TRY(db.Query("BEGIN IMMEDIATE").Run());
  return SqlTransaction(db);
}

SqlTransaction::~SqlTransaction() {
  // Some errors (a full disk) have rolled back already; then this fails, as it may.
  if (db_ != nullptr) (void)db_->Query("ROLLBACK").Run();
}

Status SqlTransaction::Commit() {
  INFERSCALE_TRY(db_->Query("COMMIT").Run());
  db_ = nullptr;
  return {};
}

Status PrepareTables(SqlDatabase& db, const SqlKind& kind) {
  INFERSCALE_ASSIGN(SqlTransaction transaction, SqlTransaction::Begin(db));
  INFERSCALE_ASSIGN(const int64_t tables, db.QueryInt("SELECT count(*) FROM sqlite_schema"));
  INFERSCALE_ASSIGN(const int64_t application, db.QueryInt("PRAGMA application_id"));
  INFERSCALE_ASSIGN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  if (tables == 0) {
    INFERSCALE_TRY(db.Exec(fmt::format("{} PRAGMA application_id={}; PRAGMA user_version={}",
                                       kind.tables, kind.application_id, kind.version)));
  } else if (application != kind.application_id || version != kind.version) {
    return Fail(Code::kCorrupt, "{}: not {}, or of another version", db.path(), kind.name);
  }
  return transaction.Commit();
}

}  // namespace inferscale
