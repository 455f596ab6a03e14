// The little of SQLite that the store needs, with Result in place of return codes.
#ifndef INFERSCALE_STORE_SQLITE_H_
#define INFERSCALE_STORE_SQLITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/hash.h"
#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace inferscale {

// One statement in use. Parameters are bound in order; text and hashes are copied. Back in its
// connection's cache when it goes, so that no read transaction stays open.
class SqliteQuery {
 public:
  SqliteQuery(sqlite3_stmt* statement, const std::string& path)
      : statement_(statement), path_(path) {}
  ~SqliteQuery();
  SqliteQuery(const SqliteQuery&) = delete;
  SqliteQuery& operator=(const SqliteQuery&) = delete;

  SqliteQuery& Bind(uint64_t value);
  SqliteQuery& Bind(std::string_view text);
  SqliteQuery& Bind(const Hash128& hash);

  // True: a row is there. False: no more.
  Result<bool> Step();
  // Steps to the end.
  Status Run();

  uint64_t Int(int column) const;
  std::string Text(int column) const;
  Hash128 Hash(int column) const;

 private:
  sqlite3_stmt* statement_;
  const std::string& path_;
  int bound_ = 0;
};

// A connection. Used by one thread at a time.
class Sqlite {
 public:
  // Opens or creates. A file that is no database fails at the first statement with kCorrupt.
  static Result<std::unique_ptr<Sqlite>> Open(const std::string& path);
  ~Sqlite();
  Sqlite(const Sqlite&) = delete;
  Sqlite& operator=(const Sqlite&) = delete;

  // Statements without parameters or results, separated by ';'.
  Status Exec(const char* sql);
  // `sql` is a literal: statements are kept by its address.
  Result<std::unique_ptr<SqliteQuery>> Query(const char* sql);
  uint64_t changes() const;  // rows that the last statement changed
  // Makes the file an empty database, however damaged it is; other connections notice.
  Status Reset();

 private:
  Sqlite(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}
  void Forget();

  sqlite3* db_;
  std::string path_;
  std::unordered_map<const char*, sqlite3_stmt*> statements_;
};

// A write transaction from its beginning, rolled back unless committed.
class SqliteTransaction {
 public:
  static Result<std::unique_ptr<SqliteTransaction>> Begin(Sqlite& db);
  ~SqliteTransaction();
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;
  Status Commit();

 private:
  explicit SqliteTransaction(Sqlite& db) : db_(db) {}
  Sqlite& db_;
  bool open_ = true;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_SQLITE_H_
