// The place of a Unix domain socket in the file system.
#ifndef INFERSCALE_SERVER_SOCKET_FILE_H_
#define INFERSCALE_SERVER_SOCKET_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "store/env.h"

namespace inferscale {

// One process at a time has a path. The lock is a file beside it, PATH.lock, which stays: who
// removed it could remove another's.
class SocketFile {
 public:
  // Nothing is at `path` on return: a socket that nobody listens on any more is removed. kConflict
  // if somebody does, kInvalid for a path that is too long or where something else is.
  static Result<std::unique_ptr<SocketFile>> Claim(const std::string& path);
  ~SocketFile();  // removes the socket, if it is still the one
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

  // The socket was bound: from now on only this user may connect. To be called before it listens.
  Status Bound();

 private:
  SocketFile(std::string path, std::unique_ptr<FileLock> lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;
  const std::unique_ptr<FileLock> lock_;
  uint64_t device_ = 0;  // of the bound socket
  uint64_t inode_ = 0;   // 0: none was bound
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_SOCKET_FILE_H_
