#include "server/openai_json.h"

#include <algorithm>
#include <iterator>

#include "base/utf8.h"
#include "engine/json_grammar.h"
#include "server/request_id.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr int64_t kMaxTokens = 1 << 20;
constexpr size_t kMaxStops = 16;
constexpr int64_t kMaxChoices = 8;

json::object TokenToJson(const TokenLogprob& token) {
  json::object out = {{"token", TokenName(token.text)},
                      {"logprob", LogprobForJson(token.logprob)},
                      {"bytes", nullptr}};
  // U+FFFD stands for bytes that a server does not tell.
  if (token.text.find("\xef\xbf\xbd") == std::string::npos) {
    json::array& bytes = out["bytes"].emplace_array();
    for (const char c : token.text) bytes.emplace_back(static_cast<uint8_t>(c));
  }
  return out;
}

}  // namespace

Status ReadSampling(const Members& root, Sampling& sampling) {
  INFERSCALE_TRY(root.Integer("max_tokens", 1, kMaxTokens, sampling.max_tokens));
  INFERSCALE_TRY(root.Integer("max_completion_tokens", 1, kMaxTokens, sampling.max_tokens));
  INFERSCALE_TRY(root.Number("temperature", 0, 2, sampling.temperature));
  INFERSCALE_TRY(root.Number("top_p", 0.0001, 1, sampling.top_p));
  INFERSCALE_TRY(root.Number("min_p", 0, 1, sampling.min_p));
  INFERSCALE_TRY(root.Integer("top_k", 0, 1 << 20, sampling.top_k));
  INFERSCALE_TRY(root.Integer("seed", 0, INT64_MAX, sampling.seed));
  const json::value* stop = root.Find("stop");
  if (stop == nullptr) return {};
  if (stop->is_string()) {
    sampling.stop = {std::string(stop->get_string())};
    return {};
  }
  const json::array* list = stop->if_array();
  if (list == nullptr || list->size() > kMaxStops) return root.Wrong("stop", "up to 16 strings");
  sampling.stop.clear();
  for (const json::value& one : *list) {
    if (!one.is_string()) return root.Wrong("stop", "up to 16 strings");
    sampling.stop.emplace_back(one.get_string());
  }
  return {};
}

Status ReadResponseFormat(const Members& root, Sampling& sampling) {
  const json::value* format = root.Find("response_format");
  if (format == nullptr) return {};
  if (!format->is_object()) return root.Wrong("response_format", "an object");
  const Members members(format->get_object(), "response_format.");
  std::string type;
  INFERSCALE_TRY(members.Text("type", type));
  if (type == "text") return {};
  if (type == "json_object") {
    sampling.grammar = kJsonObjectGrammar;
    return {};
  }
  if (type != "json_schema") return members.Wrong("type", "text, json_object or json_schema");
  const json::value* named = members.Find("json_schema");
  const json::object* object = named == nullptr ? nullptr : named->if_object();
  const json::value* schema = object == nullptr ? nullptr : object->if_contains("schema");
  if (schema == nullptr || !schema->is_object()) {
    return members.Wrong("json_schema", "an object with a 'schema' that is an object");
  }
  sampling.json_schema = json::serialize(*schema);
  return {};
}

Status ReadChoices(const Members& root, uint32_t& choices) {
  return root.Integer("n", 1, kMaxChoices, choices);
}

Status ReadStreaming(const Members& root, bool& stream, bool& include_usage) {
  INFERSCALE_TRY(root.Bool("stream", stream));
  const json::value* options = root.Find("stream_options");
  if (options == nullptr || !options->is_object()) return {};
  return Members(options->get_object(), "stream_options.").Bool("include_usage", include_usage);
}

std::string NewAnswerId(std::string_view kind) { return fmt::format("{}-{}", kind, NewId()); }

json::object HeadToJson(const AnswerHead& head, std::string_view object) {
  return {{"id", head.id}, {"object", object}, {"created", head.created_s}, {"model", head.model}};
}

std::string UsagePart(const AnswerHead& head, std::string_view object, const GenerateStats& stats) {
  json::object part = HeadToJson(head, object);
  part["choices"] = json::array();
  part["usage"] = UsageToJson(stats);
  return json::serialize(part);
}

json::object UsageToJson(const GenerateStats& stats) {
  return {
      {"prompt_tokens", stats.prompt_tokens},
      {"completion_tokens", stats.generated_tokens},
      {"total_tokens", stats.prompt_tokens + stats.generated_tokens},
      {"prompt_tokens_details", {{"cached_tokens", stats.injected_tokens + stats.cached_tokens}}}};
}

json::value FinishToJson(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
}

json::value LogprobsToJson(std::span<const PlaceLogprobs> places) {
  if (places.empty()) return nullptr;
  json::array content;
  for (const PlaceLogprobs& place : places) {
    json::object one = TokenToJson(place.chosen);
    json::array& top = one["top_logprobs"].emplace_array();
    for (const TokenLogprob& token : place.top) top.push_back(TokenToJson(token));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

std::string TokenName(std::string_view bytes) {
  if (FindInvalidUtf8(bytes) == std::string_view::npos) return std::string(bytes);
  std::string name = "bytes:";
  for (const char c : bytes) {
    fmt::format_to(std::back_inserter(name), "\\x{:02x}", static_cast<uint8_t>(c));
  }
  return name;
}

float LogprobForJson(float logprob) { return std::max(logprob, -9999.0F); }

}  // namespace inferscale
