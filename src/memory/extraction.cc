#include "memory/extraction.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <chrono>
#include <unordered_set>

#include "memory/fold.h"

namespace inferscale {
namespace {

namespace json = boost::json;

// Without an example: small models answer with that instead.
constexpr std::string_view kTask =
    "You keep a memory about people. Read the messages and write down what is worth remembering "
    "for a long time: who people are, what they like, own, plan and did, and when and where.\n"
    "- Each fact is one short sentence that is understood without the messages: write names "
    "instead of he, she and I, and dates instead of words like yesterday.\n"
    "- Leave out greetings, questions and what is known already.\n"
    "- If a fact corrects or takes the place of a known memory, \"replaces\" is the number of that "
    "memory; otherwise it is null.\n"
    "Answer with JSON: {\"facts\": [{\"text\": \"...\", \"replaces\": null}]}\n"
    "Known memories:";

constexpr std::array kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                              "Thursday", "Friday", "Saturday"};

// "Friday, last week" can only be understood by who knows which day it is.
std::string DayOfWeek(int64_t unix_ms) {
  using namespace std::chrono;
  const weekday day(floor<days>(sys_time<milliseconds>(milliseconds(unix_ms))));
  return kDays[day.c_encoding()];
}

// Up to where the last whole fact ends, closed as if the answer ended there.
std::string Closed(std::string_view answer) {
  const size_t end = answer.rfind('}');
  if (end == std::string_view::npos) return R"({"facts": []})";
  return std::string(answer.substr(0, end + 1)) + "]}";
}

Result<std::optional<size_t>> ReadReplaces(const json::object& fact, size_t known) {
  const json::value* value = fact.if_contains("replaces");
  if (value == nullptr || value->is_null()) return std::nullopt;
  const int64_t* number = value->if_int64();
  if (number == nullptr || *number < 1 || *number > static_cast<int64_t>(known)) {
    return Fail(Code::kInvalid, "'replaces' must be null or the number of one of {} known facts",
                known);
  }
  return static_cast<size_t>(*number - 1);
}

}  // namespace

ExtractionPrompt MakeExtractionPrompt(std::span<const Fact> messages, std::span<const Fact> known) {
  ExtractionPrompt prompt{.system = std::string(kTask), .known = {}, .question = "Messages:\n"};
  for (const Fact& fact : known) {
    prompt.known.push_back(fmt::format("{}. {}", prompt.known.size() + 1, RenderFact(fact)));
  }
  if (known.empty()) prompt.known.emplace_back("none\n");
  for (const Fact& message : messages) {
    if (message.when_ms) prompt.question += DayOfWeek(*message.when_ms) + " ";
    prompt.question += RenderFact(message);
  }
  prompt.question.pop_back();
  return prompt;
}

std::string ExtractionGrammar(size_t known) {
  std::string replaces = "\"null\"";
  for (size_t i = 1; i <= known; ++i) replaces += fmt::format(" | \"{}\"", i);
  return fmt::format(
      R"(root ::= "{{\"facts\": [" (fact (", " fact){{0,{}}})? "]}}"
fact ::= "{{\"text\": \"" char+ "\", \"replaces\": " replaces "}}"
char ::= [^"\\\x00-\x1f\x7f] | "\\" ["\\/]
replaces ::= {}
)",
      kMostExtracted - 1, replaces);
}

Result<std::vector<ExtractedFact>> ParseExtraction(std::string_view answer, size_t known,
                                                   bool complete) {
  const std::string closed = complete ? std::string(answer) : Closed(answer);
  json::error_code failed;
  const json::value value = json::parse(closed, failed);
  const json::object* root = failed ? nullptr : value.if_object();
  const json::value* facts = root == nullptr ? nullptr : root->if_contains("facts");
  if (facts == nullptr || !facts->is_array()) {
    return Fail(Code::kInvalid, "the model's answer has no list of facts");
  }
  std::vector<ExtractedFact> out;
  std::unordered_set<std::string> said;
  std::unordered_set<size_t> replaced;
  for (const json::value& one : facts->get_array()) {
    const json::object* object = one.if_object();
    const json::value* text = object == nullptr ? nullptr : object->if_contains("text");
    if (text == nullptr || !text->is_string()) {
      return Fail(Code::kInvalid, "a fact of the model's answer has no text");
    }
    ExtractedFact fact{.text = std::string(text->get_string()), .replaces = {}};
    INFERSCALE_ASSIGN(fact.replaces, ReadReplaces(*object, known));
    if (fact.replaces && !replaced.insert(*fact.replaces).second) fact.replaces.reset();
    Fact bare;
    bare.text = fact.text;
    if (IsBlank(fact.text) || !said.insert(NormalizeForDuplicates(bare)).second) continue;
    out.push_back(std::move(fact));
  }
  return out;
}

}  // namespace inferscale
