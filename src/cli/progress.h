// How far a long piece of work is: a bar that redraws itself on a terminal, a plain line every few
// seconds elsewhere. Written to stderr.
#ifndef INFERSCALE_CLI_PROGRESS_H_
#define INFERSCALE_CLI_PROGRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace inferscale {

// "Encoding  [#########.......] 120/240  1,480 tokens/s", `columns` of bar.
std::string ProgressLine(std::string_view label, uint64_t done, uint64_t total,
                         std::string_view note, size_t columns);

class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress() { Finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(uint64_t done, uint64_t total, std::string_view note = "");
  // Leaves the last state on a line of its own.
  void Finish();

 private:
  void Write();

  std::string label_;
  bool terminal_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
  std::string note_;
  bool pending_ = false;  // the last state has not been written
  bool open_ = false;     // a bar stands on the terminal's last line
  double next_ms_ = 0;
  Stopwatch watch_;
};

}  // namespace inferscale

#endif  // INFERSCALE_CLI_PROGRESS_H_
