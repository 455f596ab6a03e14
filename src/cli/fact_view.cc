#include "cli/fact_view.h"

#include <boost/json/parse.hpp>

namespace inferscale {
namespace {

boost::json::value TextOrNull(const std::string& text) {
  return text.empty() ? boost::json::value(nullptr) : boost::json::value(text);
}

boost::json::value TimeOrNull(const std::optional<int64_t>& time) {
  return time ? boost::json::value(FormatTime(*time)) : boost::json::value(nullptr);
}

}  // namespace

boost::json::object FactToJson(const Fact& fact) {
  boost::json::error_code failed;
  boost::json::value metadata = boost::json::parse(fact.metadata, failed);
  if (failed) metadata = boost::json::object();
  return {{"id", fact.id},
          {"text", fact.text},
          {"speaker", TextOrNull(fact.speaker)},
          {"when", TimeOrNull(fact.when_ms)},
          {"user", TextOrNull(fact.scope.user)},
          {"agent", TextOrNull(fact.scope.agent)},
          {"run", TextOrNull(fact.scope.run)},
          {"metadata", std::move(metadata)},
          {"version", fact.version},
          {"created", FormatTime(fact.created_ms)},
          {"updated", FormatTime(fact.updated_ms)},
          {"expires", TimeOrNull(fact.expires_ms)}};
}

namespace {

// Its parts below each other.
std::string DescribeFact(const Fact& fact) {
  std::vector<std::pair<std::string, std::string>> items = {{"id", fact.id}, {"text", fact.text}};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) items.emplace_back(name, value);
  };
  add("speaker", fact.speaker);
  if (fact.when_ms) add("when", FormatTime(*fact.when_ms));
  add("user", fact.scope.user);
  add("agent", fact.scope.agent);
  add("run", fact.scope.run);
  if (fact.metadata != "{}") add("metadata", fact.metadata);
  add("version", fmt::format("{}", fact.version));
  add("created", FormatTime(fact.created_ms));
  if (fact.updated_ms != fact.created_ms) add("updated", FormatTime(fact.updated_ms));
  if (fact.expires_ms) add("expires", FormatTime(*fact.expires_ms));
  return Listing(items);
}

}  // namespace

void ShowFact(const Fact& fact, const Options& options) {
  if (options.json()) {
    PrintJson(FactToJson(fact));
  } else {
    Print(DescribeFact(fact));
  }
}

std::string FactDay(const Fact& fact) { return fact.when_ms ? RenderDate(*fact.when_ms) : ""; }

}  // namespace inferscale
