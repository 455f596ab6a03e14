// A client's chat request: understood whole, or an error that does not quote it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/chat_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto request =
      inferscale::ParseChatRequest({reinterpret_cast<const char*>(data), size}, {});
  if (!request) return 0;
  if (request->ask.choices < 1 || request->ask.choices > 8) std::abort();
  if (request->ask.sampling.logprobs.value_or(0) > 20) std::abort();
  if (request->ask.question.empty() || request->ask.sampling.max_tokens == 0) std::abort();
  if (request->ask.scope.user.empty() && request->ask.mode != inferscale::MemoryMode::kNone) {
    std::abort();
  }
  return 0;
}
