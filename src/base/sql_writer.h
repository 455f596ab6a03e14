// The one connection that writes to a database, for many threads. What they want written while the
// disk is busy is committed together: a commit waits for the disk once, however much is in it.
#ifndef INFERSCALE_BASE_SQL_WRITER_H_
#define INFERSCALE_BASE_SQL_WRITER_H_

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "base/mutex.h"
#include "base/result.h"
#include "base/sqlite.h"

namespace inferscale {

// Thread-safe.
class SqlWriter {
 public:
  explicit SqlWriter(std::unique_ptr<SqlDatabase> db) : db_(std::move(db)) {}

  // Runs `body`, perhaps on another thread that writes too; nothing else is written meanwhile. On
  // return it is durable, or, if the Result is an error or it throws, nothing of it was done.
  template <typename Body>
  std::invoke_result_t<Body, SqlDatabase&> Write(const Body& body) EXCLUDES(queue_mutex_) {
    std::optional<std::invoke_result_t<Body, SqlDatabase&>> result;
    INFERSCALE_TRY(Run([&](SqlDatabase& db) -> Status {
      result.emplace(body(db));
      if (!*result) return tl::unexpected<Error>(result->error());
      return {};
    }));
    return *std::move(result);
  }

  // How many calls of Write have not been done yet.
  size_t waiting() EXCLUDES(queue_mutex_) {
    MutexLock lock(queue_mutex_);
    return queue_.size();
  }

  // The same outside of a transaction, as VACUUM wants it.
  template <typename Body>
  std::invoke_result_t<Body, SqlDatabase&> WithoutTransaction(const Body& body)
      EXCLUDES(db_mutex_) {
    MutexLock lock(db_mutex_);
    return body(*db_);
  }

 private:
  using Work = std::function<Status(SqlDatabase&)>;
  struct Waiting {
    const Work* work = nullptr;
    Status status{};
    std::exception_ptr thrown{};
    bool done = false;
    CondVar changed{};
  };

  Status Run(const Work& work) EXCLUDES(queue_mutex_, db_mutex_);
  void CommitTogether(std::span<Waiting* const> group) EXCLUDES(db_mutex_);
  Status RunAll(std::span<Waiting* const> group) REQUIRES(db_mutex_);

  Mutex queue_mutex_;
  std::deque<Waiting*> queue_ GUARDED_BY(queue_mutex_);  // whose is first writes for all
  Mutex db_mutex_;
  const std::unique_ptr<SqlDatabase> db_;  // used under db_mutex_
};

}  // namespace inferscale

#endif  // INFERSCALE_BASE_SQL_WRITER_H_
