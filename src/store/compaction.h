// Gives the disk back what erased and orphaned records still hold.
#ifndef INFERSCALE_STORE_COMPACTION_H_
#define INFERSCALE_STORE_COMPACTION_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "store/catalog.h"
#include "store/env.h"
#include "store/kv_store.h"
#include "store/segment_writer.h"

namespace inferscale {

// One pass over the segments of a directory. Only one process may run one at a time (the caller
// holds a lock for that); readers and writers go on. Segments that a live process appends to are
// left alone, but for a full compaction, which asks for them.
//
// A segment is rewritten in an order that loses nothing at any point: live records are copied and
// synced, the catalog switches to the copies in one transaction, the old file is removed. A reader
// that still has the old file open keeps it; one that comes too late asks the catalog again.
class Compaction {
 public:
  Compaction(Env& env, const Clock& clock, const KvStoreOptions& options, Catalog& catalog,
             bool full)
      : env_(env), clock_(clock), options_(options), catalog_(catalog), full_(full) {}

  Result<CompactReport> Run();
  // Records that were found damaged on the way and dropped; also after an error.
  uint64_t corrupt_records() const { return corrupt_records_; }

 private:
  Status CompactSegment(const std::string& segment);
  Result<std::unique_ptr<SegmentLock>> TakeLock(const std::string& segment) const;
  Status Rewrite(const std::string& segment, const ReadableFile& file,
                 const std::vector<CatalogRow>& rows);
  Result<RecordPlace> Copy(const ReadableFile& file, const CatalogRow& row);
  Status PrepareOutput(const Fingerprint& fingerprint);
  Status RemoveSegment(const std::string& segment);
  Status SweepLocks();

  Env& env_;
  const Clock& clock_;
  const KvStoreOptions& options_;
  Catalog& catalog_;
  const bool full_;
  const std::chrono::steady_clock::time_point patience_ends_ =
      std::chrono::steady_clock::now() + options_.seal_patience;
  std::unique_ptr<SegmentWriter> output_;  // of one fingerprint; shared by its segments
  Fingerprint output_fingerprint_;
  std::vector<std::string> outputs_;
  CompactReport report_;
  uint64_t corrupt_records_ = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_COMPACTION_H_
