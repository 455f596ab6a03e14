// A folder that is gone with its owner.
#ifndef INFERSCALE_CLI_TEMP_DIR_H_
#define INFERSCALE_CLI_TEMP_DIR_H_

#include <string>
#include <utility>

#include "base/result.h"

namespace inferscale {

class TempDir {
 public:
  // Under $TMPDIR or /tmp; kTransient if it can't be made.
  static Result<TempDir> Make();
  ~TempDir();
  TempDir(TempDir&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  TempDir& operator=(TempDir&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }

  const std::string& path() const { return path_; }

 private:
  explicit TempDir(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace inferscale

#endif  // INFERSCALE_CLI_TEMP_DIR_H_
