// A vLLM server's answers: whatever it sends, the result is checked or an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/vllm/protocol.h"
#include "engine/vllm/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  using namespace inferscale;
  switch (data[0] % 7) {
    case 0:
      if (const auto model = ParseModels(body); model && model->id.empty()) std::abort();
      break;
    case 1:
      if (const auto info = ParseInfo(body); info && info->injection && !info->shape.Validate()) {
        std::abort();
      }
      break;
    case 2:
      if (const auto tokens = ParseTokens(body)) {
        for (const Token token : *tokens) {
          if (token < 0) std::abort();
        }
      }
      break;
    case 3:
      (void)ParseDetokenized(body);
      break;
    case 4:
      (void)ParseCompletion(body);
      break;
    case 5:
      (void)ParseTokenizerInfo(body);
      break;
    default: {
      const std::vector<std::string> markers = {"<|a|>", "<|", "|>", "\xc3\xa9x"};
      std::string again;
      for (const std::string_view part : CutMarkers(body, markers)) {
        for (const std::string& marker : markers) {
          if (part.find(marker) != std::string_view::npos) std::abort();
        }
        again += part;
      }
      if (again != body) std::abort();
    }
  }
  return 0;
}
