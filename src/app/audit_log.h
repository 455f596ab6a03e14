// What was put into each answer, kept on the disk: ids and numbers, never text. A file of its own
// (audit.db, WAL, synchronous=FULL) that holds the last answers, so many of them as its writer
// says. Rows of a user go when the user's facts are deleted as a whole.
#ifndef INFERSCALE_APP_AUDIT_LOG_H_
#define INFERSCALE_APP_AUDIT_LOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/sqlite.h"
#include "memory/fact.h"

namespace inferscale {

struct AuditRecord {
  int64_t number = 0;   // given by the log; rising
  int64_t at_ms = 0;    // Unix ms
  std::string answer;   // its id, as the client was told
  std::string request;  // and the request's: X-Request-ID
  Scope scope;          // of the question
  std::string mode;     // how memory reached the model
  uint64_t injected_tokens = 0;
  uint64_t held_tokens = 0;  // that the engine had from earlier turns
  uint64_t computed_tokens = 0;
  std::vector<std::string> injected;  // ids of facts whose KV was written into the context
  std::vector<std::string> computed;  // and of those that were read as text
};

// Thread-safe; several processes may use the file.
class AuditLog {
 public:
  // Made for its owner only. kCorrupt for another kind of file or a newer version's.
  static Result<std::unique_ptr<AuditLog>> Open(const std::string& path);

  // Durable on return; of older ones at most `keep` - 1 stay.
  Status Add(const AuditRecord& record, uint64_t keep);
  // Those before a number (0: all), the newest first; of one tenant, or of all.
  Result<std::vector<AuditRecord>> Last(size_t limit, int64_t before,
                                        const std::optional<std::string>& tenant);
  // Of questions of this tenant and of what else the scope names.
  Status DeleteScope(const Scope& scope);
  // What was deleted is then nowhere in the file and its log.
  Status Compact();

 private:
  explicit AuditLog(std::unique_ptr<SqlDatabase> db);

  Mutex mutex_;
  std::unique_ptr<SqlDatabase> db_ GUARDED_BY(mutex_);
};

}  // namespace inferscale

#endif  // INFERSCALE_APP_AUDIT_LOG_H_
