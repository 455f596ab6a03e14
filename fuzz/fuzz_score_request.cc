// A line for `inferscale bench score`: understood whole, or an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cli/score.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  if (const auto texts = inferscale::ParseEmbedRequest(line); texts && *texts) {
    for (const std::string& text : **texts) {
      if (text.empty()) std::abort();
    }
  }
  const auto request = inferscale::ParseScoreRequest(line, {});
  if (!request) return 0;
  if (request->user.empty() || request->question.empty() || request->max_tokens == 0 ||
      request->arms.empty() || request->arms.front().episode == 0) {
    std::abort();
  }
  return 0;
}
