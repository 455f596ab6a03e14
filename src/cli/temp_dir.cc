#include "cli/temp_dir.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace inferscale {

Result<TempDir> TempDir::Make() {
  const char* parent = std::getenv("TMPDIR");
  std::string path =
      fmt::format("{}/inferscale-XXXXXX", parent == nullptr || *parent == '\0' ? "/tmp" : parent);
  if (mkdtemp(path.data()) == nullptr) {
    return Fail(Code::kTransient, "a temporary folder could not be made: {}", std::strerror(errno));
  }
  return TempDir(std::move(path));
}

TempDir::~TempDir() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace inferscale
