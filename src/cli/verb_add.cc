#include <fmt/format.h>
#include <unistd.h>

#include <boost/json/array.hpp>

#include "cli/ingest.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

struct Args {
  std::vector<std::string> texts;
  std::string speaker;
  std::string when;
  std::string metadata;
  std::string expires;
  bool infer = false;
};

struct Kept {
  std::string id;
  std::string_view event;
  std::string text{};  // if it is not the one that was given
};

Result<std::vector<std::string>> LinesOfStdin() {
  if (isatty(STDIN_FILENO) != 0) {
    return Fail(Code::kInvalid,
                "nothing to add: give TEXT, or lines on standard input (see add --help)");
  }
  INFERSCALE_ASSIGN(const std::string content, ReadInput("-"));
  std::vector<std::string> lines;
  for (size_t start = 0; start < content.size();) {
    const size_t end = std::min(content.find('\n', start), content.size());
    std::string line = content.substr(start, end - start);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) lines.push_back(std::move(line));
    start = end + 1;
  }
  if (lines.empty()) return Fail(Code::kInvalid, "nothing to add: standard input has no text");
  return lines;
}

std::string_view EventName(AddEvent event) {
  return event == AddEvent::kAdded ? "added" : "duplicate";
}

std::string_view EventName(InferEvent event) {
  switch (event) {
    case InferEvent::kAdded:
      return "added";
    case InferEvent::kUpdated:
      return "updated";
    case InferEvent::kDuplicate:
      break;
  }
  return "duplicate";
}

Result<std::vector<Kept>> Keep(App& app, const std::vector<Fact>& facts, bool infer) {
  std::vector<Kept> kept;
  if (infer) {
    INFERSCALE_ASSIGN(const auto inferred, app.AddInferred(facts));
    for (const InferredFact& one : inferred) {
      kept.push_back({one.fact.id, EventName(one.event), one.fact.text});
    }
  } else {
    INFERSCALE_ASSIGN(const auto added, app.Add(facts));
    for (const AddResult& one : added) kept.push_back({one.id, EventName(one.event)});
  }
  return kept;
}

Result<int> Run(const Args& args, const Options& options) {
  std::vector<std::string> texts = args.texts;
  if (texts.empty()) {
    INFERSCALE_ASSIGN(texts, LinesOfStdin());
  }
  Fact like;
  like.scope = options.scope;
  like.speaker = args.speaker;
  if (!args.metadata.empty()) like.metadata = args.metadata;
  INFERSCALE_TRY(CheckText("--speaker", args.speaker));
  INFERSCALE_ASSIGN(like.when_ms, ParseTimeFlag("--when", args.when));
  INFERSCALE_ASSIGN(like.expires_ms, ParseTimeFlag("--expires", args.expires));
  std::vector<Fact> facts(texts.size(), like);
  for (size_t i = 0; i < texts.size(); ++i) facts[i].text = std::move(texts[i]);

  INFERSCALE_ASSIGN(const auto app,
                    OpenApplication(options.app, args.infer ? Need::kAnswer : Need::kSearch));
  INFERSCALE_ASSIGN(const std::vector<Kept> results, Keep(*app, facts, args.infer));
  if (options.json()) {
    boost::json::array items;
    for (const Kept& result : results) {
      boost::json::object item = {{"id", result.id}, {"event", result.event}};
      if (args.infer) item["text"] = result.text;
      items.push_back(std::move(item));
    }
    PrintJson({{"results", std::move(items)}});
  } else {
    for (const Kept& result : results) {
      Print(fmt::format("{}  {}{}{}\n", result.id, result.event, args.infer ? "  " : "",
                        result.text));
    }
    if (results.empty()) Say("the model found nothing to remember");
  }
  return kExitOk;
}

}  // namespace

Verb AddVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* command = AddCommand(
      root, "add", "Remember facts",
      {"inferscale add \"Ana moved to Lisbon in May.\" --speaker Ana --when 2024-05-08",
       "inferscale add \"Bo is allergic to nuts\" --user bo --metadata '{\"topic\":\"health\"}'",
       "cut -f2 notes.tsv | inferscale add --user bo"});
  AddTexts(command, "TEXT", &args->texts,
           "Facts, one an argument; without any, every line of standard input is one");
  command->add_option("--speaker", args->speaker, "Who said it")->type_name("NAME");
  command->add_option("--when", args->when, "When it was said or happened, ISO 8601")
      ->type_name("TIME");
  command->add_option("--metadata", args->metadata, "A JSON object to keep with it")
      ->type_name("JSON");
  command->add_option("--expires", args->expires, "When to forget it, ISO 8601")->type_name("TIME");
  AddInferFlag(command, &args->infer);
  return {command, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
