#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json/array.hpp>

#include "base/clock.h"
#include "cli/ingest.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "memory/export.h"

namespace inferscale {
namespace {

struct Args {
  std::string file;
  bool from_export = false;
  std::string format = "auto";
  bool no_encode = false;
  bool infer = false;
};

constexpr size_t kErrorsShown = 10;

struct Report {
  uint64_t facts = 0;
  std::vector<Error> skipped;
  std::map<std::string, uint64_t, std::less<>> dropped;
  Ingested adding;
  std::optional<EncodeProgress> encoding;
};

void PrintReport(const Report& report, bool json) {
  if (json) {
    boost::json::array errors;
    for (const Error& error : report.skipped) errors.emplace_back(error.message);
    boost::json::object out = {{"facts", report.facts},
                               {"added", report.adding.added},
                               {"duplicates", report.adding.duplicates},
                               {"updated", report.adding.updated},
                               {"skipped", report.skipped.size()},
                               {"errors", std::move(errors)},
                               {"add_ms", Rounded(report.adding.ms)},
                               {"encoded", nullptr}};
    if (!report.dropped.empty()) {
      boost::json::object dropped;
      for (const auto& [what, count] : report.dropped) dropped[what] = count;
      out["not_kept"] = std::move(dropped);
    }
    if (report.encoding) {
      out["encoded"] = {{"facts", report.encoding->facts_done},
                        {"episodes", report.encoding->episodes_done},
                        {"stored_tokens", report.encoding->stored_tokens},
                        {"computed_tokens", report.encoding->computed_tokens},
                        {"failed", report.encoding->failed},
                        {"ms", Rounded(report.encoding->ms)}};
    }
    PrintJson(out);
    return;
  }
  Print(fmt::format("Added    {} facts, {} were there already{}, {} skipped ({})\n",
                    FormatCount(report.adding.added), FormatCount(report.adding.duplicates),
                    report.adding.updated == 0
                        ? ""
                        : fmt::format(", {} updated", FormatCount(report.adding.updated)),
                    FormatCount(report.skipped.size()), FormatMs(report.adding.ms)));
  if (!report.dropped.empty()) {
    std::vector<std::string> dropped;
    for (const auto& [what, count] : report.dropped) {
      dropped.push_back(fmt::format("{} {}", FormatCount(count), what));
    }
    Print(fmt::format("Not kept {}\n", fmt::join(dropped, ", ")));
  }
  if (report.encoding) Print(fmt::format("Encoded  {}\n", DescribeEncoding(*report.encoding)));
}

void SaySkipped(const std::vector<Error>& skipped) {
  for (size_t i = 0; i < std::min(skipped.size(), kErrorsShown); ++i) {
    Say(fmt::format("skipped {}", skipped[i].message));
  }
  if (skipped.size() > kErrorsShown) {
    Say(fmt::format("skipped {} more", skipped.size() - kErrorsShown));
  }
}

// What a file holds: facts to be added, or those of an export with their ids and history.
struct Content {
  ParsedFacts parsed;
  std::vector<FactWithHistory> exported;
  size_t facts() const { return parsed.facts.size() + exported.size(); }
};

// They would be deleted as soon as they are there.
void DropExpired(ParsedFacts& parsed) {
  const int64_t now = SystemClock().NowMs();
  const size_t expired = std::erase_if(
      parsed.facts, [&](const Fact& fact) { return fact.expires_ms.value_or(now + 1) <= now; });
  if (expired > 0) parsed.dropped["facts that have expired or stopped being true"] = expired;
}

Result<Content> Parse(const Args& args, const Options& options) {
  INFERSCALE_ASSIGN(const ImportFormat format, ParseImportFormat(args.format));
  INFERSCALE_ASSIGN(const std::string content, ReadInput(args.file));
  Content out;
  if (args.from_export || (format == ImportFormat::kAuto && LooksLikeExport(content))) {
    auto exported = ParseExport(content);
    if (!exported) return Wrap(std::move(exported).error(), args.file + ": nothing was imported");
    out.exported = *std::move(exported);
    for (FactWithHistory& fact : out.exported) fact.fact.scope.tenant = options.scope.tenant;
    return out;
  }
  Fact defaults;
  defaults.scope = options.scope;
  auto parsed = ParseFacts(content, format, defaults);
  if (!parsed) return Wrap(std::move(parsed).error(), args.file);
  out.parsed = *std::move(parsed);
  DropExpired(out.parsed);
  return out;
}

Result<int> Run(const Args& args, const Options& options) {
  INFERSCALE_ASSIGN(Content content, Parse(args, options));
  const bool encode = !args.no_encode && NamesEngine(options.app);
  INFERSCALE_ASSIGN(
      const auto app,
      OpenApplication(options.app, encode || args.infer ? Need::kAnswer : Need::kSearch));
  Report report;
  report.facts = content.facts();
  report.skipped = std::move(content.parsed.skipped);
  report.dropped = std::move(content.parsed.dropped);
  if (content.exported.empty()) {
    const std::vector<Fact>& facts = content.parsed.facts;
    INFERSCALE_ASSIGN(report.adding, args.infer ? InferFacts(*app, facts) : AddFacts(*app, facts));
  } else {
    INFERSCALE_ASSIGN(report.adding, RestoreFacts(*app, content.exported));
  }
  report.skipped.insert(report.skipped.end(), report.adding.refused.begin(),
                        report.adding.refused.end());
  SaySkipped(report.skipped);
  bool interrupted = report.adding.interrupted;
  if (encode && !Interrupted()) {
    INFERSCALE_ASSIGN(report.encoding, EncodeAll(*app, &interrupted));
  }
  PrintReport(report, options.json());
  if (interrupted || Interrupted()) {
    return Fail(
        Code::kCancelled,
        "interrupted; {} of {} facts are {}. Run the same command again to go on: nothing is "
        "added twice",
        report.adding.seen, report.facts, args.infer ? "read" : "stored");
  }
  if (report.facts == 0) return Fail(Code::kInvalid, "{}: no facts in it", args.file);
  if (!args.no_encode && !encode) {
    Say("not encoded, as no --model or --url was given; run inferscale encode later");
  }
  return kExitOk;
}

}  // namespace

Verb ImportVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* command =
      AddCommand(root, "import", "Remember conversations from a file; can be stopped and run again",
                 {"inferscale import chat.jsonl --user ana",
                  "inferscale import locomo10.json --format locomo   # a user for each sample",
                  "inferscale import - --format text --no-encode < notes.txt",
                  "inferscale import memories.json --from mem0       # also zep and letta",
                  "inferscale import facts.jsonl --from-export"});
  command
      ->add_option(
          "FILE", args->file,
          "Chat JSONL, LoCoMo JSON, text, an export of ours, or of Mem0's, Zep's or Letta's; - "
          "is standard input")
      ->required();
  command
      ->add_option("--format,--from", args->format,
                   "auto, jsonl, locomo or text; or what another memory has exported: mem0, zep or "
                   "letta")
      ->type_name("FORMAT")
      ->capture_default_str();
  command->add_flag("--from-export", args->from_export,
                    "The file is one of inferscale export, which is also recognised by itself");
  command->add_flag("--no-encode", args->no_encode, "Leave the encoding to inferscale encode");
  AddInferFlag(command, &args->infer);
  return {command, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
