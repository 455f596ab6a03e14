#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "store/env.h"

namespace inferscale {
namespace {

// Everything that isn't plainly about the name is the system's trouble of the moment: a store that
// took EACCES or EMFILE for a missing file would drop records that are still there.
tl::unexpected<Error> Errno(std::string_view what, const std::string& path, int error) {
  Code code = Code::kTransient;
  if (error == ENOENT) code = Code::kNotFound;
  if (error == EEXIST) code = Code::kConflict;
  return Fail(code, "{} {}: {}", what, path, std::generic_category().message(error));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Result<Descriptor> OpenFd(std::string_view what, const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd < 0) return Errno(what, path, errno);
  return Descriptor(fd);
}

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Status ReadAt(uint64_t offset, MutableByteSpan out) const override {
    while (!out.empty()) {
      const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Errno("read", path_, errno);
      if (got == 0) {
        return Fail(Code::kCorrupt, "read {}: ends {} bytes early at {}", path_, out.size(),
                    offset);
      }
      offset += static_cast<uint64_t>(got);
      out = out.subspan(static_cast<size_t>(got));
    }
    return {};
  }

  Result<uint64_t> Size() const override {
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) return Errno("stat", path_, errno);
    return static_cast<uint64_t>(info.st_size);
  }

 private:
  Descriptor fd_;
  std::string path_;
};

class PosixAppendFile final : public AppendFile {
 public:
  PosixAppendFile(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Status Append(ByteSpan bytes) override {
    while (!bytes.empty()) {
      const ssize_t put = ::write(fd_.get(), bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return Errno("write", path_, errno);
      size_ += static_cast<uint64_t>(put);
      bytes = bytes.subspan(static_cast<size_t>(put));
    }
    return {};
  }

  Status Sync() override {
    if (::fdatasync(fd_.get()) != 0) return Errno("fdatasync", path_, errno);
    return {};
  }

  uint64_t size() const override { return size_; }

 private:
  Descriptor fd_;
  std::string path_;
  uint64_t size_ = 0;
};

class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(Descriptor fd) : fd_(std::move(fd)) {}

 private:
  Descriptor fd_;  // closing it releases the lock
};

class PosixEnv final : public Env {
 public:
  Result<std::unique_ptr<ReadableFile>> OpenRead(const std::string& path) override {
    INFERSCALE_ASSIGN(Descriptor fd, OpenFd("open", path, O_RDONLY));
    return std::make_unique<PosixReadableFile>(std::move(fd), path);
  }

  Result<std::unique_ptr<AppendFile>> Create(const std::string& path) override {
    INFERSCALE_ASSIGN(Descriptor fd,
                      OpenFd("create", path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND));
    return std::make_unique<PosixAppendFile>(std::move(fd), path);
  }

  Status CreateDirs(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return Errno("create directory", path, error.value());
    return {};
  }

  Result<std::vector<std::string>> List(const std::string& dir) override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator it(dir, error);
    for (const std::filesystem::directory_iterator end; !error && it != end; it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error) return Errno("list", dir, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  Status Remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return Errno("remove", path, errno);
    return {};
  }

  Status SyncDir(const std::string& dir) override {
    INFERSCALE_ASSIGN(const Descriptor fd, OpenFd("open", dir, O_RDONLY | O_DIRECTORY));
    if (::fsync(fd.get()) != 0) return Errno("fsync", dir, errno);
    return {};
  }

  Result<uint64_t> AllocatedBytes(const std::string& path) override {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return Errno("stat", path, errno);
    constexpr uint64_t kStatBlock = 512;  // st_blocks counts these, whatever the file system uses
    return static_cast<uint64_t>(info.st_blocks) * kStatBlock;
  }

  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    INFERSCALE_ASSIGN(Descriptor fd, OpenFd("open", path, O_RDWR | O_CREAT));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return Fail(Code::kConflict, "lock {}: held by another", path);
      return Errno("lock", path, errno);
    }
    return std::make_unique<PosixFileLock>(std::move(fd));
  }
};

}  // namespace

Env& SystemEnv() {
  static PosixEnv env;
  return env;
}

}  // namespace inferscale
