// Segment files of a store's directory: their names, and the one that is being appended to.
//
//   <dir>/<fingerprint, 32 hex digits>/<rank>/<name>.seg
//   <dir>/<fingerprint, 32 hex digits>/<rank>/<name>.seg.lock   while a process appends to it
//   <dir>/<fingerprint, 32 hex digits>/<rank>/<name>.seg.seal   while another asks it to let go
#ifndef INFERSCALE_STORE_SEGMENT_WRITER_H_
#define INFERSCALE_STORE_SEGMENT_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "store/catalog.h"
#include "store/env.h"
#include "store/kv_store.h"
#include "store/segment.h"

namespace inferscale {

inline constexpr std::string_view kSegmentSuffix = ".seg";
inline constexpr std::string_view kSegmentLockSuffix = ".lock";  // after the segment's own
inline constexpr std::string_view kSegmentSealSuffix = ".seal";

// All files below `dir` whose names end in `suffix`, as paths below `dir`, sorted. Whether a
// catalog row names them plays no part.
Result<std::vector<std::string>> ListSegments(Env& env, const std::string& dir,
                                              std::string_view suffix = kSegmentSuffix);

// While one lives, its holder alone may append to the segment or remove it. A segment's name is
// never used again, so the lock file goes with the lock, and with it what was asked of its holder.
class SegmentLock {
 public:
  // kConflict while another has it.
  static Result<std::unique_ptr<SegmentLock>> Take(Env& env, const std::string& dir,
                                                   const std::string& segment);
  ~SegmentLock();
  // Asks the holder to let go, by a file: it need not be this process, nor answer. Asking twice is
  // no error.
  static Status AskFor(Env& env, const std::string& dir, const std::string& segment);
  // Whether somebody asked for this one.
  bool asked() const;
  SegmentLock(const SegmentLock&) = delete;
  SegmentLock& operator=(const SegmentLock&) = delete;

 private:
  SegmentLock(Env& env, std::string segment, std::unique_ptr<FileLock> lock)
      : env_(env), segment_(std::move(segment)), lock_(std::move(lock)) {}

  Env& env_;
  const std::string segment_;  // its path
  const std::unique_ptr<FileLock> lock_;
};

// A new segment file. Locked for as long as this lives, so that no compaction takes it away. Not
// thread-safe.
class SegmentWriter {
 public:
  static Result<std::unique_ptr<SegmentWriter>> Create(Env& env, const Clock& clock,
                                                       const std::string& dir,
                                                       const Fingerprint& fingerprint);
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;

  // After an error the end of the file is unknown: let the writer go, it is of no more use. What
  // was synced before stays good.
  Result<RecordPlace> Append(const KvRecordInfo& info, ByteSpan payload);
  // A record as it stands in another segment.
  Result<RecordPlace> AppendCopy(ByteSpan record, uint32_t checksum);
  // Everything appended is durable.
  Status Sync();

  // A compaction waits for this segment: let the writer go.
  bool asked_to_end() const { return lock_->asked(); }

  const std::string& segment() const { return segment_; }
  uint64_t size() const { return file_->size(); }

 private:
  SegmentWriter(std::string segment, std::unique_ptr<SegmentLock> lock,
                std::unique_ptr<AppendFile> file)
      : segment_(std::move(segment)), lock_(std::move(lock)), file_(std::move(file)) {}

  const std::string segment_;
  const std::unique_ptr<SegmentLock> lock_;
  const std::unique_ptr<AppendFile> file_;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_SEGMENT_WRITER_H_
