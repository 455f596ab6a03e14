#include "fault_env.h"

#include <sqlite3.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace inferscale {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string Parent(const std::string& path) { return fs::path(path).parent_path(); }

class FaultReadableFile final : public ReadableFile {
 public:
  FaultReadableFile(FaultEnv& env, std::unique_ptr<ReadableFile> file)
      : env_(env), file_(std::move(file)) {}
  Status ReadAt(uint64_t offset, MutableByteSpan out) const override {
    INFERSCALE_TRY(env_.Call("read"));
    return file_->ReadAt(offset, out);
  }
  Result<uint64_t> Size() const override {
    INFERSCALE_TRY(env_.Call("size"));
    return file_->Size();
  }

 private:
  FaultEnv& env_;
  std::unique_ptr<ReadableFile> file_;
};

class FaultAppendFile final : public AppendFile {
 public:
  FaultAppendFile(FaultEnv& env, std::unique_ptr<AppendFile> file, std::string path)
      : env_(env), file_(std::move(file)), path_(std::move(path)) {}
  Status Append(ByteSpan bytes) override {
    if (Status refused = env_.Call("append"); !refused) {
      (void)file_->Append(bytes.first(env_.Random(bytes.size() + 1)));  // a part gets through
      return refused;
    }
    return file_->Append(bytes);
  }
  Status Sync() override {
    if (Status refused = env_.Call("sync"); !refused) {
      lost_ = true;  // the system marks the pages clean: later syncs succeed without them
      return refused;
    }
    if (!lost_) env_.Synced(path_, file_->size());
    return {};
  }
  uint64_t size() const override { return file_->size(); }

 private:
  FaultEnv& env_;
  std::unique_ptr<AppendFile> file_;
  std::string path_;
  bool lost_ = false;
};

// SQLite's side: a VFS over the system's that asks the FaultEnv first.
FaultEnv* g_env = nullptr;
sqlite3_vfs* g_system = nullptr;

struct VfsFile {
  sqlite3_file base;
  std::string* path;
  sqlite3_file* real;  // right behind this
};

VfsFile* Of(sqlite3_file* file) { return reinterpret_cast<VfsFile*>(file); }
sqlite3_file* Real(sqlite3_file* file) { return Of(file)->real; }

int VfsClose(sqlite3_file* file) {
  const int rc = Real(file)->pMethods->xClose(Real(file));
  delete Of(file)->path;
  return rc;
}
int VfsRead(sqlite3_file* file, void* out, int size, sqlite3_int64 offset) {
  if (g_env->Fails()) return SQLITE_IOERR_READ;
  return Real(file)->pMethods->xRead(Real(file), out, size, offset);
}
int VfsWrite(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 offset) {
  if (g_env->Fails()) return g_env->Random(2) == 0 ? SQLITE_FULL : SQLITE_IOERR_WRITE;
  return Real(file)->pMethods->xWrite(Real(file), bytes, size, offset);
}
int VfsTruncate(sqlite3_file* file, sqlite3_int64 size) {
  if (g_env->Fails()) return SQLITE_IOERR_TRUNCATE;
  return Real(file)->pMethods->xTruncate(Real(file), size);
}
int VfsSync(sqlite3_file* file, int flags) {
  if (g_env->Fails()) return SQLITE_IOERR_FSYNC;
  const int rc = Real(file)->pMethods->xSync(Real(file), flags);
  if (rc == SQLITE_OK && Of(file)->path != nullptr) g_env->DatabaseSynced(*Of(file)->path);
  return rc;
}
int VfsFileSize(sqlite3_file* file, sqlite3_int64* size) {
  return Real(file)->pMethods->xFileSize(Real(file), size);
}
int VfsLock(sqlite3_file* file, int level) {
  return Real(file)->pMethods->xLock(Real(file), level);
}
int VfsUnlock(sqlite3_file* file, int level) {
  return Real(file)->pMethods->xUnlock(Real(file), level);
}
int VfsCheckReservedLock(sqlite3_file* file, int* out) {
  return Real(file)->pMethods->xCheckReservedLock(Real(file), out);
}
int VfsFileControl(sqlite3_file* file, int op, void* arg) {
  return Real(file)->pMethods->xFileControl(Real(file), op, arg);
}
int VfsSectorSize(sqlite3_file* file) { return Real(file)->pMethods->xSectorSize(Real(file)); }
int VfsCharacteristics(sqlite3_file* file) {
  return Real(file)->pMethods->xDeviceCharacteristics(Real(file));
}
int VfsShmMap(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
  return Real(file)->pMethods->xShmMap(Real(file), page, size, extend, out);
}
int VfsShmLock(sqlite3_file* file, int offset, int count, int flags) {
  return Real(file)->pMethods->xShmLock(Real(file), offset, count, flags);
}
void VfsShmBarrier(sqlite3_file* file) { Real(file)->pMethods->xShmBarrier(Real(file)); }
int VfsShmUnmap(sqlite3_file* file, int remove) {
  return Real(file)->pMethods->xShmUnmap(Real(file), remove);
}

// Version 2: with shared memory for WAL, without memory-mapped reads.
const sqlite3_io_methods kMethods = {2,
                                     VfsClose,
                                     VfsRead,
                                     VfsWrite,
                                     VfsTruncate,
                                     VfsSync,
                                     VfsFileSize,
                                     VfsLock,
                                     VfsUnlock,
                                     VfsCheckReservedLock,
                                     VfsFileControl,
                                     VfsSectorSize,
                                     VfsCharacteristics,
                                     VfsShmMap,
                                     VfsShmLock,
                                     VfsShmBarrier,
                                     VfsShmUnmap,
                                     nullptr,
                                     nullptr};

int VfsOpen(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  file->pMethods = nullptr;
  if (g_env->Fails()) return SQLITE_CANTOPEN;
  Of(file)->real = reinterpret_cast<sqlite3_file*>(Of(file) + 1);
  const int rc = g_system->xOpen(g_system, name, Real(file), flags, out_flags);
  if (rc != SQLITE_OK) return rc;
  Of(file)->path = name == nullptr ? nullptr : new std::string(name);
  if (name != nullptr) g_env->DatabaseOpened(name);
  file->pMethods = &kMethods;
  return SQLITE_OK;
}
int VfsDelete(sqlite3_vfs*, const char* name, int sync) {
  if (g_env->Fails()) return SQLITE_IOERR_DELETE;
  g_env->DatabaseRemoved(name);
  return g_system->xDelete(g_system, name, sync);
}

sqlite3_vfs MakeVfs() {
  sqlite3_vfs vfs = *g_system;
  vfs.zName = "fault";
  vfs.szOsFile += static_cast<int>(sizeof(VfsFile));
  vfs.pNext = nullptr;
  vfs.xOpen = VfsOpen;
  vfs.xDelete = VfsDelete;
  return vfs;
}

}  // namespace

FaultEnv::FaultEnv(std::string root, uint64_t seed) : root_(std::move(root)), random_(seed) {
  if (g_system == nullptr) g_system = sqlite3_vfs_find(nullptr);
  static sqlite3_vfs vfs = MakeVfs();
  g_env = this;
  sqlite3_vfs_register(&vfs, 1);
}

FaultEnv::~FaultEnv() {
  sqlite3_vfs_register(g_system, 1);
  g_env = nullptr;
}

Status FaultEnv::Call(const char* what) {
  ++calls_;
  if (calls_ == fail_at_ || (cut_at_ != 0 && calls_ >= cut_at_)) {
    failed_ = true;
    return Fail(Code::kTransient, "{} number {} fails as ordered", what, calls_);
  }
  return {};
}

void FaultEnv::DatabaseSynced(const std::string& path) { databases_[path] = ReadAll(path); }

Result<std::unique_ptr<ReadableFile>> FaultEnv::OpenRead(const std::string& path) {
  INFERSCALE_TRY(Call("open"));
  INFERSCALE_ASSIGN(auto file, SystemEnv().OpenRead(path));
  return std::make_unique<FaultReadableFile>(*this, std::move(file));
}

Result<std::unique_ptr<AppendFile>> FaultEnv::Create(const std::string& path) {
  INFERSCALE_TRY(Call("create"));
  INFERSCALE_ASSIGN(auto file, SystemEnv().Create(path));
  if (path.ends_with(".seg")) {  // databases are followed on SQLite's side
    files_[path] = 0;
    unsynced_entries_.insert(path);
  }
  return std::make_unique<FaultAppendFile>(*this, std::move(file), path);
}

Status FaultEnv::CreateDirs(const std::string& path) {
  INFERSCALE_TRY(Call("create directory"));
  for (std::string dir = path; dir.size() > root_.size() && !fs::exists(dir); dir = Parent(dir)) {
    unsynced_entries_.insert(dir);
  }
  return SystemEnv().CreateDirs(path);
}

Result<std::vector<std::string>> FaultEnv::List(const std::string& dir) {
  INFERSCALE_TRY(Call("list"));
  return SystemEnv().List(dir);
}

Status FaultEnv::Remove(const std::string& path) {
  INFERSCALE_TRY(Call("remove"));
  if (!files_.contains(path)) return SystemEnv().Remove(path);  // a lock: nothing to bring back
  const std::string kept = root_ + "/.removed-" + std::to_string(calls_);
  fs::rename(path, kept);
  removed_[path] = kept;
  return {};
}

Status FaultEnv::SyncDir(const std::string& dir) {
  INFERSCALE_TRY(Call("sync directory"));
  std::erase_if(unsynced_entries_, [&](const std::string& path) { return Parent(path) == dir; });
  std::erase_if(removed_, [&](const auto& entry) {
    if (Parent(entry.first) != dir) return false;
    fs::remove(entry.second);
    files_.erase(entry.first);
    return true;
  });
  return {};
}

Result<uint64_t> FaultEnv::AllocatedBytes(const std::string& path) {
  INFERSCALE_TRY(Call("stat"));
  return SystemEnv().AllocatedBytes(path);
}

Result<std::unique_ptr<FileLock>> FaultEnv::Lock(const std::string& path) {
  INFERSCALE_TRY(Call("lock"));
  return SystemEnv().Lock(path);
}

void FaultEnv::PowerOn() {
  RestoreFiles();
  RestoreDatabases();
  cut_at_ = fail_at_ = 0;
  failed_ = false;
}

void FaultEnv::RestoreFiles() {
  for (const auto& [path, kept] : removed_) {
    if (Random(2) == 0) {
      fs::rename(kept, path);
    } else {
      fs::remove(kept);
      files_.erase(path);
    }
  }
  removed_.clear();
  for (const std::string& path : unsynced_entries_) {
    if (Random(2) == 0) continue;
    fs::remove_all(path);
    std::erase_if(files_, [&](const auto& file) {
      return file.first == path || file.first.starts_with(path + "/");
    });
  }
  unsynced_entries_.clear();
  for (auto& [path, synced] : files_) {
    if (!fs::exists(path)) continue;
    const uint64_t size = fs::file_size(path);
    const uint64_t kept = size <= synced ? size : synced + Random(size - synced + 1);
    std::string bytes = ReadAll(path).substr(0, kept);
    // Blocks whose size was journalled but whose data was not are read as anything.
    for (uint64_t i = synced; i < kept; i += 1 + Random(64)) {
      bytes[i] = static_cast<char>(random_());
    }
    WriteAll(path, bytes);
    synced = kept;
  }
}

void FaultEnv::RestoreDatabases() {
  for (auto& [path, synced] : databases_) {
    if (fs::exists(path) && Random(2) == 0) WriteAll(path, synced);
    // Shared memory does not outlive the power.
    fs::remove(path + "-shm");
  }
}

}  // namespace inferscale
