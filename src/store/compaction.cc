#include "store/compaction.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "store/record_reader.h"

namespace inferscale {

Result<CompactReport> Compaction::Run() {
  INFERSCALE_ASSIGN(const auto segments, ListSegments(env_, options_.dir));
  for (const std::string& segment : segments) INFERSCALE_TRY(CompactSegment(segment));
  output_.reset();
  INFERSCALE_TRY(SweepLocks());
  for (const std::string& output : outputs_) {
    INFERSCALE_ASSIGN(const uint64_t used, env_.AllocatedBytes(options_.dir + "/" + output));
    report_.bytes_freed -= std::min(report_.bytes_freed, used);
  }
  return report_;
}

Result<std::unique_ptr<SegmentLock>> Compaction::TakeLock(const std::string& segment) const {
  constexpr std::chrono::milliseconds kPause(10);
  auto lock = SegmentLock::Take(env_, options_.dir, segment);
  if (lock || lock.error().code != Code::kConflict || !full_) return lock;
  INFERSCALE_TRY(SegmentLock::AskFor(env_, options_.dir, segment));
  while (!lock && lock.error().code == Code::kConflict &&
         std::chrono::steady_clock::now() < patience_ends_) {
    std::this_thread::sleep_for(kPause);
    lock = SegmentLock::Take(env_, options_.dir, segment);
  }
  return lock;
}

Status Compaction::CompactSegment(const std::string& segment) {
  const auto lock = TakeLock(segment);
  if (!lock) {
    if (lock.error().code != Code::kConflict) return tl::unexpected(lock.error());
    ++report_.segments_busy;  // being appended to
    return {};
  }

  const auto file = env_.OpenRead(options_.dir + "/" + segment);
  if (!file) return tl::unexpected(file.error());
  INFERSCALE_ASSIGN(const uint64_t size, (*file)->Size());
  INFERSCALE_ASSIGN(const auto rows, catalog_.RecordsIn(segment));
  uint64_t live = 0;
  for (const CatalogRow& row : rows) live += row.place.length;

  if (rows.empty()) return RemoveSegment(segment);
  const bool sparse =
      static_cast<double>(live) < options_.compact_below * static_cast<double>(size);
  if (!sparse && !(full_ && live < size)) return {};
  return Rewrite(segment, **file, rows);
}

Status Compaction::Rewrite(const std::string& segment, const ReadableFile& file,
                           const std::vector<CatalogRow>& rows) {
  INFERSCALE_TRY(PrepareOutput(Hash128::FromHex(segment.substr(0, segment.find('/')))));
  std::vector<CatalogRow> moved, damaged;
  std::vector<RecordPlace> places;
  for (const CatalogRow& row : rows) {
    auto place = Copy(file, row);
    if (place) {
      moved.push_back(row);
      places.push_back(std::move(*place));
    } else if (place.error().code == Code::kCorrupt) {
      damaged.push_back(row);
    } else if (place.error().code == Code::kUnsupported) {
      return {};  // a later version wrote it and knows how to move it
    } else {
      return tl::unexpected(std::move(place).error());
    }
  }
  INFERSCALE_TRY(output_->Sync());
  INFERSCALE_TRY(catalog_.Move(moved, places));
  INFERSCALE_ASSIGN(const uint64_t dropped, catalog_.Drop(damaged));
  corrupt_records_ += dropped;
  INFERSCALE_TRY(RemoveSegment(segment));
  ++report_.segments_rewritten;
  return {};
}

Result<RecordPlace> Compaction::Copy(const ReadableFile& file, const CatalogRow& row) {
  INFERSCALE_ASSIGN(const uint64_t payload_offset, PayloadOffset(row));
  INFERSCALE_ASSIGN(const uint64_t size, file.Size());
  if (row.place.length > size) return Fail(Code::kCorrupt, "{} is cut off", row.place.segment);
  std::vector<std::byte> record(row.place.length);
  INFERSCALE_TRY(file.ReadAt(row.place.offset, record));
  const ByteSpan bytes(record);
  INFERSCALE_TRY(VerifyRecord(row, bytes.first(payload_offset),
                              bytes.subspan(payload_offset, row.payload_bytes)));
  return output_->AppendCopy(bytes, row.place.checksum);
}

Status Compaction::PrepareOutput(const Fingerprint& fingerprint) {
  if (output_ != nullptr && output_fingerprint_ == fingerprint &&
      output_->size() < options_.segment_bytes) {
    return {};
  }
  INFERSCALE_ASSIGN(output_, SegmentWriter::Create(env_, clock_, options_.dir, fingerprint));
  output_fingerprint_ = fingerprint;
  outputs_.push_back(output_->segment());
  return {};
}

Status Compaction::RemoveSegment(const std::string& segment) {
  const std::string path = options_.dir + "/" + segment;
  INFERSCALE_ASSIGN(const uint64_t used, env_.AllocatedBytes(path));
  INFERSCALE_TRY(env_.Remove(path));
  INFERSCALE_TRY(env_.SyncDir(path.substr(0, path.rfind('/'))));
  report_.bytes_freed += used;
  ++report_.segments_removed;
  return {};
}

// A process that died left its lock files; taking and releasing such a lock removes the file.
Status Compaction::SweepLocks() {
  INFERSCALE_ASSIGN(const auto locks, ListSegments(env_, options_.dir, kSegmentLockSuffix));
  for (const std::string& path : locks) {
    const auto lock = SegmentLock::Take(env_, options_.dir,
                                        path.substr(0, path.size() - kSegmentLockSuffix.size()));
    if (!lock && lock.error().code != Code::kConflict) return tl::unexpected(lock.error());
  }
  return {};
}

}  // namespace inferscale
