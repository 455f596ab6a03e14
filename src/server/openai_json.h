// What OpenAI's chat completions and completions have in common.
#ifndef INFERSCALE_SERVER_OPENAI_JSON_H_
#define INFERSCALE_SERVER_OPENAI_JSON_H_

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/engine.h"
#include "server/json_members.h"

namespace inferscale {

// max_tokens, temperature, stop and so on, where the request says them.
Status ReadSampling(const Members& root, Sampling& sampling);
// stream and stream_options.include_usage.
Status ReadStreaming(const Members& root, bool& stream, bool& include_usage);

// What is the same in all parts of an answer.
struct AnswerHead {
  std::string id;
  std::string model;
  int64_t created_s = 0;
};
// "KIND-" and random digits.
std::string NewAnswerId(std::string_view kind);

boost::json::object HeadToJson(const AnswerHead& head, std::string_view object);
// The part of a stream that has nothing but the usage.
std::string UsagePart(const AnswerHead& head, std::string_view object, const GenerateStats& stats);
boost::json::object UsageToJson(const GenerateStats& stats);
boost::json::value FinishToJson(FinishReason reason);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_OPENAI_JSON_H_
