// What OpenAI's chat completions and completions have in common.
#ifndef INFERSCALE_SERVER_OPENAI_JSON_H_
#define INFERSCALE_SERVER_OPENAI_JSON_H_

#include <boost/json.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/engine.h"
#include "server/json_members.h"

namespace inferscale {

// max_tokens, temperature, stop and so on, where the request says them.
Status ReadSampling(const Members& root, Sampling& sampling);
// response_format: text, a JSON object, or JSON of a schema.
Status ReadResponseFormat(const Members& root, Sampling& sampling);
// n: how many answers.
Status ReadChoices(const Members& root, uint32_t& choices);
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
// As chat completions have them; null for none.
boost::json::value LogprobsToJson(std::span<const PlaceLogprobs> places);
// A token's text; one that is no text by itself is "bytes:" and its bytes as \xNN.
std::string TokenName(std::string_view bytes);
float LogprobForJson(float logprob);  // JSON has no infinity: -9999

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_OPENAI_JSON_H_
