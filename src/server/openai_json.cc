#include "server/openai_json.h"

#include <random>

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr int64_t kMaxTokens = 1 << 20;
constexpr size_t kMaxStops = 16;

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

Status ReadStreaming(const Members& root, bool& stream, bool& include_usage) {
  INFERSCALE_TRY(root.Bool("stream", stream));
  const json::value* options = root.Find("stream_options");
  if (options == nullptr || !options->is_object()) return {};
  return Members(options->get_object(), "stream_options.").Bool("include_usage", include_usage);
}

std::string NewAnswerId(std::string_view kind) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}-{:016x}{:016x}", kind, random(), random());
}

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

}  // namespace inferscale
