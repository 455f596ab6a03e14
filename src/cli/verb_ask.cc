#include <fmt/format.h>

#include "cli/answer_view.h"
#include "cli/interrupt.h"
#include "cli/sampling_flags.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

struct Args {
  std::string question;
  MemoryMode mode = MemoryMode::kAuto;
  bool explain = false;
  std::string filter;
  Sampling sampling;
};

void Explain(const Answer& answer) {
  Print("\n");
  if (answer.facts.empty()) {
    Print("No facts were used.\n");
  } else {
    PrintTable(ExplainFacts(answer.facts));
  }
  Print("\n" + ExplainNumbers(answer));
}

Result<int> Run(const Args& args, const Options& options) {
  INFERSCALE_TRY(CheckText("QUESTION", args.question));
  if (options.scope.user == "*") return Fail(Code::kInvalid, "ask needs one --user, not '*'");
  INFERSCALE_ASSIGN(const Filter filter, ParseFilterFlag(args.filter));
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kAnswer));
  AskRequest request = options.Request();
  request.scope = options.scope;
  request.question = args.question;
  request.mode = args.mode;
  request.sampling = args.sampling;
  request.filter = &filter;
  INFERSCALE_ASSIGN(const Answer answer, app->Ask(request, [&](const AnswerPiece& piece) {
    if (!options.json()) {
      Print(SafeText(piece.text));
      FlushOutput();
    }
    return !Interrupted();
  }));
  if (options.json()) {
    PrintJson(AnswerToJson(answer));
  } else {
    Print("\n");
    if (args.explain) Explain(answer);
  }
  if (answer.finish == FinishReason::kCancelled) return Fail(Code::kCancelled, "interrupted");
  return kExitOk;
}

}  // namespace

Verb AskVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* command = AddCommand(root, "ask", "Answer a question from memory",
                                 {"inferscale ask \"Where does Ana live?\"",
                                  "inferscale ask \"Where does Ana live?\" --explain --facts 20",
                                  "inferscale ask \"Where does Ana live?\" --mode text -o json"});
  command->add_option("QUESTION", args->question, "What to answer")->required();
  AddModeFlag(command, &args->mode);
  command->add_flag("--explain", args->explain,
                    "Also the facts that were used, tokens and milliseconds of every step "
                    "(always in JSON)");
  command->add_option("--filter", args->filter, "Only facts that pass it, in Mem0's JSON form")
      ->type_name("JSON");
  AddSamplingFlags(command, &args->sampling);
  return {command, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
