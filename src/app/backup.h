// A copy of a data directory that is in use. The copy is a data directory itself: to restore it is
// to use it.
#ifndef INFERSCALE_APP_BACKUP_H_
#define INFERSCALE_APP_BACKUP_H_

#include <cstdint>
#include <string>

#include "base/result.h"

namespace inferscale {

struct BackupReport {
  uint64_t facts = 0;
  uint64_t kv_records = 0;
  uint64_t bytes = 0;  // of its files; holes of segments count for nothing
};

// Others may read and write meanwhile; only a compaction of KV has to wait. Every fact that was
// acknowledged before the call is in the copy. KV that was made or erased during it may be missing
// or too much, which costs encoding or room. What was deleted before is not in it: databases are
// copied without free pages, segments without dead records.
//
// `target` appears when it is whole and durable; before that its name ends in ".partial". kConflict
// if there is something in it, kNotFound if `data_dir` has no facts, kInvalid if one folder lies in
// the other, kCorrupt if the copied facts are damaged.
Result<BackupReport> BackUp(const std::string& data_dir, const std::string& target);

}  // namespace inferscale

#endif  // INFERSCALE_APP_BACKUP_H_
