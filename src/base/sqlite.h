// A thin layer over SQLite: statements are prepared once and kept, values are bound and read by
// type, errors are Results. One thread at a time may use a database and its queries.
#ifndef INFERSCALE_BASE_SQLITE_H_
#define INFERSCALE_BASE_SQLITE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace inferscale {

class SqlDatabase;

// A statement in use. It goes back to its database when destroyed, which must outlive it.
// An error of preparing or binding is kept and returned by Next or Run.
class SqlQuery {
 public:
  SqlQuery(SqlQuery&& other) noexcept;
  SqlQuery& operator=(SqlQuery&&) = delete;
  ~SqlQuery();

  // Goes to the next row: false if there is none.
  Result<bool> Next();
  // For a statement without rows.
  Status Run();

  // Of the current row. Text and blobs are valid until the next call of Next or Run.
  int64_t Int(int column) const;
  double Real(int column) const;
  std::string_view Text(int column) const;
  ByteSpan Blob(int column) const;
  bool IsNull(int column) const;
  std::optional<int64_t> MaybeInt(int column) const;
  Hash128 Hash(int column) const;  // zero unless the value is a blob of 16 bytes

 private:
  friend class SqlDatabase;
  SqlQuery(SqlDatabase& db, std::string_view sql);

  void BindAt(int index, int64_t value);
  void BindAt(int index, uint32_t value) { BindAt(index, int64_t{value}); }
  void BindAt(int index, int value) { BindAt(index, int64_t{value}); }
  void BindAt(int index, bool value) { BindAt(index, int64_t{value}); }
  void BindAt(int index, size_t value) { BindAt(index, static_cast<int64_t>(value)); }
  void BindAt(int index, double value);
  void BindAt(int index, std::string_view value);
  void BindAt(int index, const std::string& value) { BindAt(index, std::string_view(value)); }
  void BindAt(int index, const char* value) { BindAt(index, std::string_view(value)); }
  void BindAt(int index, ByteSpan value);
  void BindAt(int index, const Hash128& value);  // 16 bytes, the high word first
  void BindAt(int index, std::nullopt_t);
  template <typename T>
  void BindAt(int index, const std::optional<T>& value) {
    value ? BindAt(index, *value) : BindAt(index, std::nullopt);
  }
  void Check(int rc);

  SqlDatabase* db_;
  std::string_view sql_;
  sqlite3_stmt* stmt_ = nullptr;
  int rc_ = 0;  // the first failure
};

struct SqlOptions {
  int busy_timeout_ms = 10'000;  // how long to wait for another writer
  int cache_kib = 16 * 1024;     // of pages in memory
};

class SqlDatabase {
 public:
  // Opens or creates `path`: write-ahead log, synchronous=FULL, freed bytes overwritten, foreign
  // keys, temporary tables in memory. kCorrupt if the file is no database, kTransient if the system
  // refuses.
  static Result<std::unique_ptr<SqlDatabase>> Open(const std::string& path, SqlOptions options);
  // The same, but first makes the file an empty database, whatever it holds and however damaged it
  // is. Who has it open sees no old rows any more, but maybe kCorrupt until it opens it again.
  static Result<std::unique_ptr<SqlDatabase>> Reset(const std::string& path, SqlOptions options);
  ~SqlDatabase();
  SqlDatabase(const SqlDatabase&) = delete;
  SqlDatabase& operator=(const SqlDatabase&) = delete;

  // Starts a statement, with values for ?1, ?2, ... in order; they are copied.
  template <typename... Values>
  SqlQuery Query(std::string_view sql, const Values&... values) {
    SqlQuery query(*this, sql);
    int index = 0;
    (query.BindAt(++index, values), ...);
    return query;
  }
  // Runs statements without values, separated by semicolons.
  Status Exec(const std::string& sql);
  // The first column of the only row.
  template <typename... Values>
  Result<int64_t> QueryInt(std::string_view sql, const Values&... values) {
    SqlQuery query = Query(sql, values...);
    INFERSCALE_ASSIGN(const bool found, query.Next());
    return found ? query.Int(0) : 0;
  }

  // A copy as of now, without free pages, in a new file for its owner only; durable on return. Who
  // has this database open reads and writes meanwhile.
  Status CopyTo(const std::string& path);

  int64_t LastRow() const;
  int64_t Changes() const;  // rows touched by the last INSERT, UPDATE or DELETE
  const std::string& path() const { return path_; }

 private:
  friend class SqlQuery;
  struct Statements;
  SqlDatabase(sqlite3* db, std::string path);
  static Result<std::unique_ptr<SqlDatabase>> OpenFile(const std::string& path);
  Status Configure(SqlOptions options);
  tl::unexpected<Error> Failure(int rc) const;

  sqlite3* db_;
  std::string path_;
  std::unique_ptr<Statements> statements_;  // those not in use
};

// Makes the file, if there is none, for its owner only, and so the logs that SQLite makes beside
// it: the text of users is nobody else's business. kTransient if the system refuses.
Status CreatePrivateFile(const std::string& path);

// A write transaction; what Commit did not end is rolled back. The write lock is taken at once, so
// that no statement inside fails because another process wrote in between.
class SqlTransaction {
 public:
  static Result<SqlTransaction> Begin(SqlDatabase& db);
  SqlTransaction(SqlTransaction&& other) noexcept : db_(std::exchange(other.db_, nullptr)) {}
  SqlTransaction& operator=(SqlTransaction&&) = delete;
  ~SqlTransaction();
  Status Commit();

 private:
  explicit SqlTransaction(SqlDatabase& db) : db_(&db) {}
  SqlDatabase* db_;
};

// A kind of file that has had one version so far.
struct SqlKind {
  std::string_view name;  // "a file of keys", in errors
  int64_t application_id = 0;
  int64_t version = 0;
  std::string_view tables;  // the statements that make them
};

// Makes the tables in an empty database. kCorrupt for another kind or version.
Status PrepareTables(SqlDatabase& db, const SqlKind& kind);

}  // namespace inferscale

#endif  // INFERSCALE_BASE_SQLITE_H_
