#include "app/audit_log.h"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>
#include <utility>

namespace inferscale {
namespace {

constexpr SqlKind kKind = {
    .name = "an audit log",
    .application_id = 0x49534155,  // "ISAU"
    .version = 1,
    .tables =
        "CREATE TABLE answers(number INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,"
        " answer TEXT NOT NULL, request TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT NOT NULL, "
        "agent TEXT NOT NULL,"
        " run TEXT NOT NULL, mode TEXT NOT NULL, injected_tokens INTEGER NOT NULL,"
        " held_tokens INTEGER NOT NULL, computed_tokens INTEGER NOT NULL,"
        " injected TEXT NOT NULL, computed TEXT NOT NULL);"
        "CREATE INDEX answers_user ON answers(tenant, user);"};

std::string IdsToText(const std::vector<std::string>& ids) {
  return boost::json::serialize(boost::json::array(ids.begin(), ids.end()));
}

std::vector<std::string> IdsFromText(std::string_view text) {
  boost::system::error_code failed;
  const boost::json::value ids = boost::json::parse({text.data(), text.size()}, failed);
  std::vector<std::string> out;
  if (failed || !ids.is_array()) return out;
  for (const boost::json::value& id : ids.get_array()) {
    if (id.is_string()) out.emplace_back(id.get_string());
  }
  return out;
}

AuditRecord ReadRecord(const SqlQuery& query) {
  AuditRecord record;
  record.number = query.Int(0);
  record.at_ms = query.Int(1);
  record.answer = query.Text(2);
  record.request = query.Text(3);
  record.scope = {std::string(query.Text(4)), std::string(query.Text(5)),
                  std::string(query.Text(6)), std::string(query.Text(7))};
  record.mode = query.Text(8);
  record.injected_tokens = static_cast<uint64_t>(query.Int(9));
  record.held_tokens = static_cast<uint64_t>(query.Int(10));
  record.computed_tokens = static_cast<uint64_t>(query.Int(11));
  record.injected = IdsFromText(query.Text(12));
  record.computed = IdsFromText(query.Text(13));
  return record;
}

}  // namespace

AuditLog::AuditLog(std::unique_ptr<SqlDatabase> db) : db_(std::move(db)) {}

Result<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path) {
  INFERSCALE_TRY(CreatePrivateFile(path));
  INFERSCALE_ASSIGN(auto db, SqlDatabase::Open(path, {.cache_kib = 1024}));
  INFERSCALE_TRY(PrepareTables(*db, kKind));
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(db)));
}

Status AuditLog::Add(const AuditRecord& record, uint64_t keep) {
  MutexLock lock(mutex_);
  INFERSCALE_ASSIGN(SqlTransaction transaction, SqlTransaction::Begin(*db_));
  const Scope& scope = record.scope;
  INFERSCALE_TRY(
      db_->Query("INSERT INTO answers VALUES(NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, "
                 "?12, ?13)",
                 record.at_ms, record.answer, record.request, scope.tenant, scope.user, scope.agent,
                 scope.run, record.mode, record.injected_tokens, record.held_tokens,
                 record.computed_tokens, IdsToText(record.injected), IdsToText(record.computed))
          .Run());
  const uint64_t most = std::min(keep, uint64_t{std::numeric_limits<int64_t>::max()});
  const int64_t oldest = db_->LastRow() - static_cast<int64_t>(most);
  INFERSCALE_TRY(db_->Query("DELETE FROM answers WHERE number <= ?1", oldest).Run());
  return transaction.Commit();
}

Result<std::vector<AuditRecord>> AuditLog::Last(size_t limit, int64_t before,
                                                const std::optional<std::string>& tenant) {
  const int64_t below = before > 0 ? before : std::numeric_limits<int64_t>::max();
  MutexLock lock(mutex_);
  SqlQuery query = db_->Query(
      "SELECT number, at_ms, answer, request, tenant, user, agent, run, mode, injected_tokens, "
      "held_tokens, computed_tokens, injected, computed FROM answers WHERE number < ?1 AND "
      "(?2 IS NULL OR tenant = ?2) ORDER BY number DESC LIMIT ?3",
      below, tenant, limit);
  std::vector<AuditRecord> records;
  for (;;) {
    INFERSCALE_ASSIGN(const bool more, query.Next());
    if (!more) return records;
    records.push_back(ReadRecord(query));
  }
}

Status AuditLog::DeleteScope(const Scope& scope) {
  MutexLock lock(mutex_);
  return db_
      ->Query(
          "DELETE FROM answers WHERE tenant = ?1 AND (?2 = '' OR user = ?2) AND "
          "(?3 = '' OR agent = ?3) AND (?4 = '' OR run = ?4)",
          scope.tenant, scope.user, scope.agent, scope.run)
      .Run();
}

Status AuditLog::Compact() {
  MutexLock lock(mutex_);
  INFERSCALE_TRY(db_->Exec("VACUUM"));
  INFERSCALE_ASSIGN(const int64_t busy, db_->QueryInt("PRAGMA wal_checkpoint(TRUNCATE)"));
  if (busy != 0) return Fail(Code::kTransient, "{}: another process reads it", db_->path());
  return {};
}

}  // namespace inferscale
