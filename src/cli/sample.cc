#include "cli/sample.h"

#include <fmt/format.h>

#include <array>
#include <boost/json/parse.hpp>
#include <filesystem>

#include "cli/ingest.h"

namespace inferscale {
namespace {

constexpr std::array kPeople = {"Ana", "Bo", "Chidi", "Dalia", "Emre", "Freya", "Goran"};
constexpr std::array kThings = {"a green bicycle",      "a small oven",      "an old piano",
                                "two oak chairs",       "a sailing jacket",  "a box of records",
                                "a used camera",        "a rain barrel",     "a folding table",
                                "a pair of wool socks", "a wooden bookshelf"};
constexpr std::array kTowns = {"Ghent", "Oulu", "Parma", "Tartu", "Girona",
                               "Leeds", "Graz", "Split", "Nantes"};
constexpr std::array kPurposes = {"the new kitchen", "my sister's birthday", "the garden",
                                  "the trip in autumn", "our neighbour"};

Result<SampleQuestion> ParseQuestion(std::string_view line) {
  boost::json::error_code failed;
  const boost::json::value value = boost::json::parse(line, failed);
  const auto* object = failed ? nullptr : value.if_object();
  const auto* question = object == nullptr ? nullptr : object->if_contains("question");
  if (question == nullptr || !question->is_string()) {
    return Fail(Code::kInvalid, "not an object with a question");
  }
  SampleQuestion out{std::string(question->get_string()), "", false};
  if (const auto* answer = object->if_contains("answer"); answer && answer->is_string()) {
    out.answer = std::string_view(answer->get_string());
  }
  if (const auto* demo = object->if_contains("demo"); demo && demo->is_bool()) {
    out.demo = demo->get_bool();
  }
  return out;
}

}  // namespace

std::string FindSample() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& folder :
       {std::filesystem::path("examples/sample"), program / "../examples/sample",
        program / "../share/inferscale/sample"}) {
    if (std::filesystem::exists(folder / "conversation.jsonl", ignored)) {
      return folder.lexically_normal().string();
    }
  }
  return "";
}

Result<Sample> ReadSample(const std::string& folder, const Scope& scope) {
  Sample sample;
  Fact defaults;
  defaults.scope = scope;
  INFERSCALE_ASSIGN(const std::string turns, ReadInput(folder + "/conversation.jsonl"));
  INFERSCALE_ASSIGN(ParsedFacts parsed, ParseFacts(turns, ImportFormat::kJsonl, defaults));
  sample.facts = std::move(parsed.facts);
  for (Fact& fact : sample.facts) fact.scope.user = scope.user;
  INFERSCALE_ASSIGN(const std::string lines, ReadInput(folder + "/questions.jsonl"));
  for (size_t start = 0, number = 1; start < lines.size(); ++number) {
    const size_t end = std::min(lines.find('\n', start), lines.size());
    const auto line = std::string_view(lines).substr(start, end - start);
    start = end + 1;
    if (line.empty()) continue;
    auto question = ParseQuestion(line);
    if (!question) {
      return Wrap(question.error(), fmt::format("{}/questions.jsonl, line {}", folder, number));
    }
    sample.questions.push_back(std::move(*question));
  }
  return sample;
}

std::vector<Fact> MakeFacts(size_t count, const Scope& scope) {
  constexpr int64_t kFirst = 1704103200000;  // 1 January 2024
  constexpr int64_t kDay = 86400000;
  std::vector<Fact> facts(count);
  for (size_t i = 0; i < count; ++i) {
    facts[i].scope = scope;
    facts[i].speaker = kPeople[i % kPeople.size()];
    facts[i].when_ms = kFirst + static_cast<int64_t>(i) * kDay;
    facts[i].text =
        fmt::format("I bought {} in {} for {} and paid {} euros.", kThings[i % kThings.size()],
                    kTowns[i % kTowns.size()], kPurposes[i % kPurposes.size()], 20 + i);
  }
  return facts;
}

std::vector<std::string> MakeQuestions(size_t count) {
  std::vector<std::string> questions;
  for (size_t i = 0; i < count; ++i) {
    questions.push_back(fmt::format("What did {} buy in {}, and for how much?",
                                    kPeople[i % kPeople.size()],
                                    kTowns[(i / kPeople.size() + i) % kTowns.size()]));
  }
  return questions;
}

}  // namespace inferscale
