#include "store/segment_writer.h"

#include <fmt/format.h>

#include <random>

namespace inferscale {
namespace {

constexpr std::string_view kRank = "0";  // tensor parallelism will have more than one

std::string PathOf(const std::string& dir, const std::string& segment) {
  return dir + "/" + segment;
}

// Sorted by age, and never the same in two processes.
std::string NewName(const Clock& clock) {
  std::random_device random;
  return fmt::format("{:013}-{:08x}{:08x}{}", clock.NowMs(), random(), random(), kSegmentSuffix);
}

// Names in `dir`; none if it is not there or not a directory of ours.
Result<std::vector<std::string>> ListOrNothing(Env& env, const std::string& dir) {
  auto names = env.List(dir);
  if (!names && names.error().code == Code::kNotFound) return std::vector<std::string>();
  return names;
}

}  // namespace

Result<std::vector<std::string>> ListSegments(Env& env, const std::string& dir,
                                              std::string_view suffix) {
  std::vector<std::string> out;
  INFERSCALE_ASSIGN(const auto fingerprints, ListOrNothing(env, dir));
  for (const std::string& fingerprint : fingerprints) {
    if (Hash128::FromHex(fingerprint).IsZero()) continue;
    const std::string folder = fmt::format("{}/{}", fingerprint, kRank);
    INFERSCALE_ASSIGN(const auto names, ListOrNothing(env, PathOf(dir, folder)));
    for (const std::string& name : names) {
      if (name.ends_with(suffix)) out.push_back(PathOf(folder, name));
    }
  }
  return out;
}

Result<std::unique_ptr<SegmentLock>> SegmentLock::Take(Env& env, const std::string& dir,
                                                       const std::string& segment) {
  std::string path = PathOf(dir, segment);
  INFERSCALE_ASSIGN(auto lock, env.Lock(path + std::string(kSegmentLockSuffix)));
  return std::unique_ptr<SegmentLock>(new SegmentLock(env, std::move(path), std::move(lock)));
}

// Files that stay behind do no harm; the next compaction takes them away.
SegmentLock::~SegmentLock() {
  (void)env_.Remove(segment_ + std::string(kSegmentSealSuffix));
  (void)env_.Remove(segment_ + std::string(kSegmentLockSuffix));
}

Status SegmentLock::AskFor(Env& env, const std::string& dir, const std::string& segment) {
  const auto made = env.Create(PathOf(dir, segment).append(kSegmentSealSuffix));
  if (!made && made.error().code != Code::kConflict) return tl::unexpected(made.error());
  return {};
}

bool SegmentLock::asked() const {
  return env_.OpenRead(segment_ + std::string(kSegmentSealSuffix)).has_value();
}

Result<std::unique_ptr<SegmentWriter>> SegmentWriter::Create(Env& env, const Clock& clock,
                                                             const std::string& dir,
                                                             const Fingerprint& fingerprint) {
  const std::string top = PathOf(dir, fingerprint.Hex());
  const std::string folder = fmt::format("{}/{}", fingerprint.Hex(), kRank);
  INFERSCALE_TRY(env.CreateDirs(PathOf(dir, folder)));
  std::string segment = PathOf(folder, NewName(clock));
  // Locked before it exists, so that no other process can ever find it unlocked and unused.
  INFERSCALE_ASSIGN(auto lock, SegmentLock::Take(env, dir, segment));
  INFERSCALE_ASSIGN(auto file, env.Create(PathOf(dir, segment)));
  for (const std::string& changed : {PathOf(dir, folder), top, dir}) {
    INFERSCALE_TRY(env.SyncDir(changed));
  }
  return std::unique_ptr<SegmentWriter>(
      new SegmentWriter(std::move(segment), std::move(lock), std::move(file)));
}

Result<RecordPlace> SegmentWriter::Append(const KvRecordInfo& info, ByteSpan payload) {
  const EncodedHeader header = EncodeRecordHeader(info, payload);
  const RecordPlace place{segment_, file_->size(), header.prefix.record_bytes,
                          header.prefix.header_crc};
  INFERSCALE_TRY(file_->Append(header.bytes));
  INFERSCALE_TRY(file_->Append(payload));
  if (const uint64_t padding = AlignRecord(payload.size()) - payload.size(); padding != 0) {
    INFERSCALE_TRY(file_->Append(std::vector<std::byte>(padding)));
  }
  return place;
}

Result<RecordPlace> SegmentWriter::AppendCopy(ByteSpan record, uint32_t checksum) {
  const RecordPlace place{segment_, file_->size(), record.size(), checksum};
  INFERSCALE_TRY(file_->Append(record));
  return place;
}

Status SegmentWriter::Sync() { return file_->Sync(); }

}  // namespace inferscale
