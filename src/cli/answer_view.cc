#include "cli/answer_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>

#include "cli/fact_view.h"

namespace inferscale {

std::string_view FinishName(FinishReason finish) {
  switch (finish) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "stop";
}

double OtherMs(const AskTimes& times) {
  const double steps = times.embed_ms + times.search_ms + times.compose_ms + times.load_ms +
                       times.inject_ms + times.prefill_ms;
  return std::max(0.0, times.first_token_ms - steps);
}

boost::json::object TimesToJson(const AskTimes& times) {
  return {
      {"embed_ms", Rounded(times.embed_ms)},     {"search_ms", Rounded(times.search_ms)},
      {"compose_ms", Rounded(times.compose_ms)}, {"load_ms", Rounded(times.load_ms)},
      {"inject_ms", Rounded(times.inject_ms)},   {"prefill_ms", Rounded(times.prefill_ms)},
      {"other_ms", Rounded(OtherMs(times))},     {"first_token_ms", Rounded(times.first_token_ms)},
      {"total_ms", Rounded(times.total_ms)}};
}

boost::json::object TokensToJson(const GenerateStats& stats) {
  return {{"prompt", stats.prompt_tokens},       {"cached", stats.cached_tokens},
          {"injected", stats.injected_tokens},   {"injected_is_planned", stats.injected_is_planned},
          {"prefilled", stats.prefilled_tokens}, {"generated", stats.generated_tokens}};
}

boost::json::object AnswerToJson(const Answer& answer) {
  boost::json::array facts;
  for (const UsedFact& used : answer.facts) {
    boost::json::object item = FactToJson(used.fact);
    item["score"] = used.score;
    item["tokens"] = used.tokens;
    item["injected"] = used.injected;
    item["tier"] =
        used.injected ? boost::json::value(TierName(used.tier)) : boost::json::value(nullptr);
    facts.push_back(std::move(item));
  }
  return {{"answer", answer.text},
          {"finish", FinishName(answer.finish)},
          {"mode", MemoryModeName(answer.mode)},
          {"facts", std::move(facts)},
          {"tokens", TokensToJson(answer.stats)},
          {"times", TimesToJson(answer.times)}};
}

Table ExplainFacts(const std::vector<UsedFact>& facts) {
  Table table({{"#", Align::kRight},
               {"SCORE", Align::kRight},
               {"KV"},
               {"TOKENS", Align::kRight},
               {"FACT"}});
  size_t number = 0;
  for (const UsedFact& used : facts) {
    std::string line = RenderFact(used.fact);
    if (!line.empty() && line.back() == '\n') line.pop_back();
    table.Add({fmt::format("{}", ++number),
               used.score > 0 ? fmt::format("{:.4f}", used.score) : "-",
               used.injected ? std::string(TierName(used.tier)) : "prefilled",
               fmt::format("{}", used.tokens), line});
  }
  return table;
}

std::string ExplainNumbers(const Answer& answer) {
  const GenerateStats& stats = answer.stats;
  const AskTimes& times = answer.times;
  const std::string cached =
      stats.cached_tokens > 0 ? fmt::format("{} held, ", FormatCount(stats.cached_tokens)) : "";
  return fmt::format(
      "Tokens  {} in the prompt = {}{} injected{} + {} prefilled; {} generated\n"
      "Time    {} to the first token = embed {:.1f} + search {:.1f} + compose {:.1f} + load {:.1f} "
      "+ inject {:.1f} + prefill {:.1f} + other {:.1f} ms; {} in all\n",
      FormatCount(stats.prompt_tokens), cached, FormatCount(stats.injected_tokens),
      stats.injected_is_planned ? " (as planned)" : "", FormatCount(stats.prefilled_tokens),
      FormatCount(stats.generated_tokens), FormatMs(times.first_token_ms), times.embed_ms,
      times.search_ms, times.compose_ms, times.load_ms, times.inject_ms, times.prefill_ms,
      OtherMs(times), FormatMs(times.total_ms));
}

}  // namespace inferscale
