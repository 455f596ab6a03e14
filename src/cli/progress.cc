#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/output.h"

namespace inferscale {
namespace {

constexpr double kRedrawMs = 100;
constexpr double kLineMs = 3000;
constexpr size_t kBarColumns = 28;

}  // namespace

std::string ProgressLine(std::string_view label, uint64_t done, uint64_t total,
                         std::string_view note, size_t columns) {
  const double share =
      total == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const auto full = static_cast<size_t>(share * static_cast<double>(columns));
  const std::string bar = columns == 0 ? ""
                                       : fmt::format("[{}{}] ", std::string(full, '#'),
                                                     std::string(columns - full, '.'));
  std::string line =
      fmt::format("{:<9} {}{}/{}", label, bar, FormatCount(done), FormatCount(total));
  return note.empty() ? line : fmt::format("{}  {}", line, note);
}

Progress::Progress(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::Update(uint64_t done, uint64_t total, std::string_view note) {
  done_ = done;
  total_ = total;
  note_ = note;
  pending_ = true;
  if (watch_.Ms() < next_ms_) return;
  Write();
}

void Progress::Write() {
  next_ms_ = watch_.Ms() + (terminal_ ? kRedrawMs : kLineMs);
  pending_ = false;
  const std::string line = ProgressLine(label_, done_, total_, note_, terminal_ ? kBarColumns : 0);
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[K{}", line);
    open_ = true;
  } else {
    fmt::print(stderr, "{}\n", line);
  }
}

void Progress::Finish() {
  if (pending_) Write();
  if (open_) fmt::print(stderr, "\n");
  open_ = false;
}

}  // namespace inferscale
