#include "base/llama_runtime.h"

#include <llama.h>
#include <spdlog/spdlog.h>

#include <mutex>
#include <string_view>
#include <utility>

namespace inferscale {
namespace {

// libllama writes a line in pieces: the first has a level, the others say "continue".
struct PendingLine {
  ggml_log_level level = GGML_LOG_LEVEL_INFO;
  std::string text;
};
thread_local PendingLine pending_line;
thread_local std::string first_error;

void WriteLine(ggml_log_level level, std::string_view line) {
  if (line.find_first_not_of(" .") == std::string_view::npos) return;  // progress dots
  if (level != GGML_LOG_LEVEL_ERROR) {
    spdlog::debug("libllama: {}", line);
    return;
  }
  spdlog::info("libllama: {}", line);
  if (first_error.empty()) first_error = line;
}

// noexcept: libllama is no place for an exception to pass through.
void OnLog(ggml_log_level level, const char* text, void* /*user_data*/) noexcept {
  PendingLine& line = pending_line;
  if (level != GGML_LOG_LEVEL_CONT) line.level = level;
  line.text += text;
  size_t begin = 0;
  for (size_t end; (end = line.text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    WriteLine(line.level, std::string_view(line.text).substr(begin, end - begin));
  }
  line.text.erase(0, begin);
}

}  // namespace

void InitLlamaRuntime() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(OnLog, nullptr);
    llama_backend_init();
  });
}

std::string TakeLlamaError() { return std::exchange(first_error, {}); }

}  // namespace inferscale
