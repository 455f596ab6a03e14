#include "base/sql_writer.h"

#include <algorithm>
#include <vector>

namespace inferscale {

Status SqlWriter::Run(const Work& work) {
  Waiting mine{.work = &work};
  std::vector<Waiting*> group;
  {
    MutexLock lock(queue_mutex_);
    queue_.push_back(&mine);
    while (!mine.done && queue_.front() != &mine) mine.changed.Wait(queue_mutex_);
    if (!mine.done) group.assign(queue_.begin(), queue_.end());
  }
  if (!group.empty()) {
    CommitTogether(group);
    MutexLock lock(queue_mutex_);
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(group.size()));
    for (Waiting* waiting : group) {
      waiting->done = true;
      waiting->changed.NotifyOne();
    }
    if (!queue_.empty()) queue_.front()->changed.NotifyOne();
  }
  if (mine.thrown) std::rethrow_exception(mine.thrown);
  return mine.status;
}

void SqlWriter::CommitTogether(std::span<Waiting* const> group) {
  MutexLock lock(db_mutex_);
  const Status committed = RunAll(group);
  if (committed) return;
  for (Waiting* waiting : group) {
    if (waiting->status) waiting->status = committed;
  }
}

Status SqlWriter::RunAll(std::span<Waiting* const> group) {
  INFERSCALE_ASSIGN(SqlTransaction transaction, SqlTransaction::Begin(*db_));
  bool any = false;
  for (Waiting* waiting : group) {
    INFERSCALE_TRY(db_->Query("SAVEPOINT one").Run());
    try {
      waiting->status = (*waiting->work)(*db_);
    } catch (...) {
      waiting->thrown = std::current_exception();
    }
    const bool failed = waiting->thrown || !waiting->status;
    any = any || !failed;
    // A full disk ends the whole transaction, and with it the savepoint and what the others wrote.
    if (failed && !db_->Query("ROLLBACK TO one").Run()) return waiting->status;
    INFERSCALE_TRY(db_->Query("RELEASE one").Run());
  }
  return any ? transaction.Commit() : Status();
}

}  // namespace inferscale
