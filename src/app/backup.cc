#include "app/backup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/sqlite.h"
#include "memory/fact_store.h"
#include "store/catalog.h"
#include "store/env.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunk = size_t{1} << 20;
// For a compaction that is at work.
constexpr std::chrono::seconds kPatience(60);
constexpr std::chrono::milliseconds kPause(50);

tl::unexpected<Error> Failed(const fs::path& path, int error) {
  return Fail(Code::kTransient, "{}: {}", path.string(), std::strerror(error));
}

// A new file, for its owner only, that is written at any place; what is not written is a hole.
class NewFile {
 public:
  explicit NewFile(fs::path path)
      : path_(std::move(path)),
        fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)),
        error_(errno) {}
  ~NewFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  Status WriteAt(uint64_t offset, ByteSpan bytes) {
    if (fd_ < 0) return Failed(path_, error_);
    while (!bytes.empty()) {
      const ssize_t put = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return Failed(path_, errno);
      offset += static_cast<uint64_t>(put);
      bytes = bytes.subspan(static_cast<size_t>(put));
    }
    return {};
  }
  // Of so many bytes at least, and durable.
  Status Finish(uint64_t bytes) {
    if (fd_ < 0) return Failed(path_, error_);
    struct stat info {};
    if (::fstat(fd_, &info) != 0) return Failed(path_, errno);
    if (static_cast<uint64_t>(info.st_size) < bytes &&
        ::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
      return Failed(path_, errno);
    }
    return ::fsync(fd_) == 0 ? Status{} : Failed(path_, errno);
  }

 private:
  const fs::path path_;
  const int fd_;
  const int error_;
};

Status CopyRange(const ReadableFile& from, uint64_t offset, uint64_t length, NewFile& to) {
  std::vector<std::byte> buffer(std::min<uint64_t>(length, kChunk));
  while (length > 0) {
    const auto part = MutableByteSpan(buffer).first(std::min<uint64_t>(length, kChunk));
    INFERSCALE_TRY(from.ReadAt(offset, part));
    INFERSCALE_TRY(to.WriteAt(offset, part));
    offset += part.size();
    length -= part.size();
  }
  return {};
}

// The records of the copied catalog, at the places that it names, and nothing else: what is dead in
// a segment is what somebody erased.
Status CopySegment(const fs::path& from, const fs::path& to, Catalog& catalog,
                   const SegmentUse& use) {
  const auto source = SystemEnv().OpenRead((from / use.segment).string());
  if (!source && source.error().code == Code::kNotFound) return {};  // encoded again
  if (!source) return tl::unexpected(source.error());
  std::error_code failed;
  fs::create_directories((to / use.segment).parent_path(), failed);
  NewFile copy(to / use.segment);
  INFERSCALE_ASSIGN(const auto rows, catalog.RecordsIn(use.segment));
  for (const CatalogRow& row : rows) {
    Status copied = CopyRange(**source, row.place.offset, row.place.length, copy);
    // A record that is cut off is found when it is read, here as there.
    if (!copied && copied.error().code != Code::kCorrupt) return copied;
  }
  return copy.Finish(use.end);
}

class Backup {
 public:
  Backup(fs::path from, fs::path to) : from_(std::move(from)), to_(std::move(to)) {}

  Result<BackupReport> Run() {
    INFERSCALE_TRY(MakeFolder(to_));
    // First, so that the KV that it refers to was made before the catalog is copied.
    INFERSCALE_TRY(CopyDatabase("memory.db"));
    BackupReport report;
    if (fs::exists(from_ / "kv" / "catalog.db")) {
      INFERSCALE_ASSIGN(report.kv_records, CopyKv());
    }
    INFERSCALE_TRY(CopyRest(""));
    INFERSCALE_ASSIGN(report.facts, CheckFacts());
    INFERSCALE_TRY(SyncFolders());
    for (const auto& entry : fs::recursive_directory_iterator(to_)) {
      if (!entry.is_regular_file()) continue;
      INFERSCALE_ASSIGN(const uint64_t bytes, SystemEnv().AllocatedBytes(entry.path().string()));
      report.bytes += bytes;
    }
    return report;
  }

 private:
  static Status MakeFolder(const fs::path& path) {
    std::error_code failed;
    fs::create_directories(path, failed);
    if (!failed) fs::permissions(path, fs::perms::owner_all, failed);
    return failed ? Failed(path, failed.value()) : Status{};
  }

  Status CopyDatabase(const fs::path& name) {
    INFERSCALE_ASSIGN(const auto db, SqlDatabase::Open((from_ / name).string(), {}));
    return db->CopyTo((to_ / name).string());
  }

  // Segments are only ever appended to, and go only by a compaction.
  Result<uint64_t> CopyKv() {
    INFERSCALE_TRY(MakeFolder(to_ / "kv"));
    INFERSCALE_ASSIGN(const auto no_compaction, WaitForCompaction());
    INFERSCALE_TRY(CopyDatabase("kv/catalog.db"));
    INFERSCALE_ASSIGN(const auto catalog, Catalog::Open((to_ / "kv" / "catalog.db").string()));
    INFERSCALE_ASSIGN(const auto segments, catalog->Segments());
    for (const SegmentUse& use : segments) {
      INFERSCALE_TRY(CopySegment(from_ / "kv", to_ / "kv", *catalog, use));
    }
    INFERSCALE_TRY(CopyRest("kv"));
    INFERSCALE_ASSIGN(const CatalogTotals totals, catalog->Totals());
    return totals.records;
  }

  Result<std::unique_ptr<FileLock>> WaitForCompaction() {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (true) {
      auto lock = SystemEnv().Lock((from_ / "kv" / "compact.lock").string());
      if (lock || lock.error().code != Code::kConflict) return lock;
      if (std::chrono::steady_clock::now() > until) return lock;
      std::this_thread::sleep_for(kPause);
    }
  }

  // Of one folder: databases that are not copied yet, and plain files but for those that only mean
  // something to a process.
  Status CopyRest(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(from_ / folder)) {
      const fs::path name = folder / entry.path().filename();
      const std::string text = name.string();
      const bool skipped = !entry.is_regular_file() || fs::exists(to_ / name) ||
                           text.ends_with(".lock") || text.ends_with("-wal") ||
                           text.ends_with("-shm");
      if (skipped) continue;
      if (text.ends_with(".db")) {
        INFERSCALE_TRY(CopyDatabase(name));
        continue;
      }
      INFERSCALE_ASSIGN(const auto source, SystemEnv().OpenRead(entry.path().string()));
      INFERSCALE_ASSIGN(const uint64_t size, source->Size());
      NewFile copy(to_ / name);
      INFERSCALE_TRY(CopyRange(*source, 0, size, copy));
      INFERSCALE_TRY(copy.Finish(size));
    }
    return {};
  }

  Result<uint64_t> CheckFacts() const {
    const SystemClock clock;
    INFERSCALE_ASSIGN(const auto facts,
                      FactStore::Open(clock, {.path = (to_ / "memory.db").string()}));
    INFERSCALE_TRY(facts->Verify());
    INFERSCALE_ASSIGN(const FactStoreStats stats, facts->Stats({}));
    return stats.facts;
  }

  Status SyncFolders() const {
    for (const auto& entry : fs::recursive_directory_iterator(to_)) {
      if (entry.is_directory()) INFERSCALE_TRY(SystemEnv().SyncDir(entry.path().string()));
    }
    return SystemEnv().SyncDir(to_.string());
  }

  const fs::path from_;
  const fs::path to_;
};

bool Contains(const fs::path& outer, const fs::path& inner) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

fs::path Absolute(const std::string& path) {
  fs::path out = fs::weakly_canonical(path);
  return out.has_filename() ? out : out.parent_path();
}

}  // namespace

Result<BackupReport> BackUp(const std::string& data_dir, const std::string& target) {
  try {
    const fs::path from = Absolute(data_dir);
    const fs::path to = Absolute(target);
    if (!fs::exists(from / "memory.db")) {
      return Fail(Code::kNotFound, "{} has no facts", from.string());
    }
    if (Contains(from, to) || Contains(to, from)) {
      return Fail(Code::kInvalid, "{} and {} lie in each other", from.string(), to.string());
    }
    if (fs::exists(to) && (!fs::is_directory(to) || !fs::is_empty(to))) {
      return Fail(Code::kConflict, "{} is there already", to.string());
    }
    const fs::path partial = to.string() + ".partial";
    if (fs::exists(partial)) {
      return Fail(Code::kConflict,
                  "{} is there: another backup is at it, or was interrupted; then remove it",
                  partial.string());
    }
    auto report = Backup(from, partial).Run();
    if (!report) {
      std::error_code ignored;
      fs::remove_all(partial, ignored);
      return report;
    }
    fs::rename(partial, to);
    INFERSCALE_TRY(SystemEnv().SyncDir(to.parent_path().string()));
    return report;
  } catch (const fs::filesystem_error& error) {
    return Fail(Code::kTransient, "{}", error.what());
  }
}

}  // namespace inferscale
