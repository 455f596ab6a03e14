#include "server/socket_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cerrno>
#include <cstring>

namespace inferscale {
namespace {

// Tells a socket that was left behind from one in use.
Status RemoveStale(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return Fail(Code::kInvalid, "{} can't be looked at: {}", path, std::strerror(errno));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return Fail(Code::kInvalid, "{} is there already and is no socket", path);
  }
  boost::asio::io_context context;
  boost::asio::local::stream_protocol::socket probe(context);
  boost::system::error_code error;
  probe.open({}, error);
  if (!error) probe.non_blocking(true, error);  // a full queue is somebody too
  if (!error) probe.connect(path, error);
  if (error != boost::asio::error::connection_refused) {
    return Fail(Code::kConflict, "another process listens on {}", path);
  }
  if (::unlink(path.c_str()) != 0) {
    return Fail(Code::kTransient, "{} can't be removed: {}", path, std::strerror(errno));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<SocketFile>> SocketFile::Claim(const std::string& path) {
  constexpr size_t kMost = sizeof(sockaddr_un{}.sun_path) - 1;
  if (path.empty() || path.size() > kMost) {
    return Fail(Code::kInvalid, "the path of a socket has 1 to {} bytes, not {}", kMost,
                path.size());
  }
  auto lock = SystemEnv().Lock(path + ".lock");
  if (!lock && lock.error().code == Code::kConflict) {
    return Fail(Code::kConflict, "another process listens on {}", path);
  }
  if (!lock) return tl::unexpected(std::move(lock).error());
  INFERSCALE_TRY(RemoveStale(path));
  return std::unique_ptr<SocketFile>(new SocketFile(path, *std::move(lock)));
}

Status SocketFile::Bound() {
  struct stat info {};
  if (::lstat(path_.c_str(), &info) != 0 || ::chmod(path_.c_str(), S_IRUSR | S_IWUSR) != 0) {
    return Fail(Code::kTransient, "{} can't be made this user's alone: {}", path_,
                std::strerror(errno));
  }
  device_ = info.st_dev;
  inode_ = info.st_ino;
  return {};
}

SocketFile::~SocketFile() {
  struct stat info {};
  if (inode_ == 0 || ::lstat(path_.c_str(), &info) != 0) return;
  if (info.st_dev == device_ && info.st_ino == inode_) ::unlink(path_.c_str());
}

}  // namespace inferscale
