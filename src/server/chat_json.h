// OpenAI's chat completions as JSON, with what memory adds (docs/serve.md).
#ifndef INFERSCALE_SERVER_CHAT_JSON_H_
#define INFERSCALE_SERVER_CHAT_JSON_H_

#include <string>
#include <string_view>
#include <vector>

#include "app/app.h"
#include "base/result.h"
#include "server/openai_json.h"

namespace inferscale {

struct ChatRequest {
  std::string model;  // empty if not said
  AskRequest ask;     // its filter is below
  Filter filter;
  bool stream = false;
  bool include_usage = false;  // in a stream
  bool remember = false;
};

// `defaults` says how many facts and so on, and the tenant, which no body can name. kInvalid says
// what is wrong with the body, without its text; kUnsupported what is not supported.
Result<ChatRequest> ParseChatRequest(std::string_view body, const AskRequest& defaults);

std::string ChatAnswer(const AnswerHead& head, const Answer& answer);
// One for each choice.
std::vector<std::string> ChatFirstChunks(const AnswerHead& head, uint32_t choices);
std::string ChatTextChunk(const AnswerHead& head, const AnswerPiece& piece);
std::vector<std::string> ChatLastChunks(const AnswerHead& head, const Answer& answer);
std::string ChatUsageChunk(const AnswerHead& head, const Answer& answer);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_CHAT_JSON_H_
