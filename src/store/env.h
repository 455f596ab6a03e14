// Every system call of the store, so that a test can lose unsynced data and fail any call.
#ifndef INFERSCALE_STORE_ENV_H_
#define INFERSCALE_STORE_ENV_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace inferscale {

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  // Fills `out` from `offset`. kCorrupt if the file ends before that, kTransient if the system
  // fails.
  virtual Status ReadAt(uint64_t offset, MutableByteSpan out) const = 0;
  virtual Result<uint64_t> Size() const = 0;
};

// Written by one thread, at its end only.
class AppendFile {
 public:
  virtual ~AppendFile() = default;
  virtual Status Append(ByteSpan bytes) = 0;
  virtual Status Sync() = 0;  // fdatasync
  virtual uint64_t size() const = 0;
};

// Held until destroyed; released by the system when the process dies.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class Env {
 public:
  virtual ~Env() = default;
  virtual Result<std::unique_ptr<ReadableFile>> OpenRead(const std::string& path) = 0;
  virtual Result<std::unique_ptr<AppendFile>> Create(
      const std::string& path) = 0;  // must not exist
  virtual Status CreateDirs(const std::string& path) = 0;
  virtual Result<std::vector<std::string>> List(const std::string& dir) = 0;  // names, sorted
  virtual Status Remove(const std::string& path) = 0;
  virtual Status SyncDir(const std::string& dir) = 0;  // makes creations and removals durable
  virtual Result<uint64_t> AllocatedBytes(const std::string& path) = 0;  // blocks on the disk
  virtual Result<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;  // kConflict if held
};

// The operating system's.
Env& SystemEnv();

}  // namespace inferscale

#endif  // INFERSCALE_STORE_ENV_H_
