// OpenAI's completions: the model goes on with a text, without a chat template and without memory.
#ifndef INFERSCALE_SERVER_COMPLETION_API_H_
#define INFERSCALE_SERVER_COMPLETION_API_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "server/router.h"

namespace inferscale {

struct CompletionRequest {
  std::string model;   // empty if not said
  std::string prompt;  // not empty
  Sampling sampling;
  uint32_t choices = 1;
  bool stream = false;
  bool include_usage = false;  // in a stream
};
// kInvalid says what is wrong with the body, without its text; kUnsupported what is not supported.
Result<CompletionRequest> ParseCompletionRequest(std::string_view body, const Sampling& defaults);

// Both must outlive it.
Route CompletionRoute(Engine& engine, const Clock& clock, const Sampling& defaults);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_COMPLETION_API_H_
