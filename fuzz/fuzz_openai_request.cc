// Requests for completions and embeddings: understood whole, or an error that does not quote them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/completion_api.h"
#include "server/embedding_api.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto completion = inferscale::ParseCompletionRequest(body, {});
  if (completion && (completion->prompt.empty() || completion->sampling.max_tokens == 0)) {
    std::abort();
  }
  if (completion && (completion->choices < 1 || completion->choices > 8 ||
                     completion->sampling.logprobs.value_or(0) > 5)) {
    std::abort();
  }
  const auto embedding = inferscale::ParseEmbeddingRequest(body);
  if (!embedding) return 0;
  if (embedding->texts.empty()) std::abort();
  for (const auto& text : embedding->texts) {
    if (text.empty()) std::abort();
  }
  return 0;
}
