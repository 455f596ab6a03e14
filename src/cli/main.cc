// The `inferscale` command: parses the command line and hands over to a verb.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

void SetUpLog(int verbose) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("inferscale"));
  spdlog::set_level(verbose >= 2   ? spdlog::level::debug
                    : verbose == 1 ? spdlog::level::info
                                   : spdlog::level::warn);
}

int Report(const Error& error) {
  Say(error.message);
  return ExitCode(error.code);
}

// CLI11's errors are exceptions; help and version are two of them.
int ReportParse(const CLI::App& root, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    root.exit(error);
    return FlushOutput() ? kExitOk : kExitFailed;
  }
  const auto verbs = root.get_subcommands();
  if (verbs.empty() && error.get_name() == "RequiredError") {
    Say("what to do? Name a verb (see inferscale --help)");
    return kExitUsage;
  }
  Say(fmt::format("{} (see inferscale {}--help)", error.what(),
                  verbs.empty() ? "" : verbs.front()->get_name() + " "));
  return kExitUsage;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App root(
      "Memory for language models: facts are stored as the model's own KV and injected, "
      "so that only the question has to be read.",
      "inferscale");
  UseHouseHelp(root);
  root.set_version_flag("--version", std::string("inferscale " INFERSCALE_VERSION));
  root.require_subcommand(1);
  AddGlobalOptions(root, &options);
  const std::vector<Verb> verbs = {
      AddVerb(root),    ImportVerb(root),  ExportVerb(root),    SearchVerb(root),
      ListVerb(root),   GetVerb(root),     UpdateVerb(root),    DeleteVerb(root),
      ForgetVerb(root), BackupVerb(root),  HistoryVerb(root),   AskVerb(root),
      ChatVerb(root),   EncodeVerb(root),  StatsVerb(root),     DoctorVerb(root),
      VerifyVerb(root), CompactVerb(root), BenchTtftVerb(root), BenchScoreVerb(root),
      DemoVerb(root),   ServeVerb(root),   KeysVerb(root),      QuotaVerb(root),
      McpVerb(root)};
  root.footer(
      "First steps:\n"
      "  inferscale add \"Ana moved to Lisbon in May.\" --speaker Ana\n"
      "  inferscale import chat.jsonl\n"
      "  inferscale ask \"Where does Ana live?\" --explain\n"
      "\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 130 interrupted.");
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ReportParse(root, error);
  }
  if (const Status status = FinishOptions(root, &options); !status) {
    Say(status.error().message);
    return kExitUsage;
  }
  SetUpLog(options.verbose);
  CatchInterrupt();
  for (const Verb& verb : verbs) {
    if (!verb.command->parsed()) continue;
    const Result<int> code = verb.run(options);
    // What was printed before an error still has to reach its reader.
    const bool written = FlushOutput();
    if (!code) return Report(code.error());
    if (!written) return Report({Code::kTransient, "could not write to standard output"});
    return *code;
  }
  return kExitUsage;
}

}  // namespace
}  // namespace inferscale

int main(int argc, char** argv) {
  try {
    return inferscale::Main(argc, argv);
  } catch (const std::exception& error) {
    inferscale::Say(std::string("internal error: ") + error.what());
    return inferscale::kExitFailed;
  }
}
