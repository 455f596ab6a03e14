// An Env that can fail any call and cut the power, and the same for the files of SQLite. Wraps real
// files. One at a time in a process.
#ifndef INFERSCALE_TESTS_STORE_FAULT_ENV_H_
#define INFERSCALE_TESTS_STORE_FAULT_ENV_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "store/env.h"

namespace inferscale {

class FaultEnv final : public Env {
 public:
  // Everything that is to be cut off from power lies below `root`.
  FaultEnv(std::string root, uint64_t seed);
  ~FaultEnv() override;

  // Calls so far, of the Env, its files and SQLite's files together.
  uint64_t calls() const { return calls_; }
  // The call with this number (from 1) fails once.
  void FailCall(uint64_t number) { fail_at_ = number; }
  bool failed() const { return failed_; }
  // From that call on everything fails, until PowerOn.
  void CutPowerAt(uint64_t number) { cut_at_ = number; }
  // The disk as it may look after the cut: what was synced is there, of the rest any part. Nothing
  // may be open.
  void PowerOn();

  Result<std::unique_ptr<ReadableFile>> OpenRead(const std::string& path) override;
  Result<std::unique_ptr<AppendFile>> Create(const std::string& path) override;
  Status CreateDirs(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& dir) override;
  Status Remove(const std::string& path) override;
  Status SyncDir(const std::string& dir) override;
  Result<uint64_t> AllocatedBytes(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override;

  // For the files that this hands out and for SQLite's.
  Status Call(const char* what);
  bool Fails() { return !Call("SQLite's call"); }
  uint64_t Random(uint64_t bound) { return random_() % bound; }
  void Synced(const std::string& path, uint64_t size) { files_[path] = size; }
  void DatabaseSynced(const std::string& path);
  void DatabaseRemoved(const std::string& path) { databases_.erase(path); }
  void DatabaseOpened(const std::string& path) { databases_.try_emplace(path); }

 private:
  void RestoreFiles();
  void RestoreDatabases();

  const std::string root_;
  std::mt19937_64 random_;
  uint64_t calls_ = 0;
  uint64_t fail_at_ = 0;
  uint64_t cut_at_ = 0;
  bool failed_ = false;

  std::map<std::string, uint64_t> files_;         // appended to: bytes that are synced
  std::set<std::string> unsynced_entries_;        // made since their directory was synced
  std::map<std::string, std::string> removed_;    // since their directory was synced -> where kept
  std::map<std::string, std::string> databases_;  // SQLite's files: contents at their last sync
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_STORE_FAULT_ENV_H_
