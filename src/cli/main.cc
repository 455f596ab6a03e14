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

// Options and verbs point into each other.
class CommandLine {
 public:
  CommandLine()
      : root_(
            "Memory for language models: facts are stored as the model's own KV and injected, "
            "so that only the question has to be read.",
            "inferscale") {
    UseHouseHelp(root_);
    root_.set_version_flag("--version", std::string("inferscale " INFERSCALE_VERSION));
    root_.require_subcommand(1);
    AddGlobalOptions(root_, &options_);
    verbs_ = {AddVerb(root_),       ImportVerb(root_),
              ExportVerb(root_),    SearchVerb(root_),
              ListVerb(root_),      GetVerb(root_),
              UpdateVerb(root_),    DeleteVerb(root_),
              ForgetVerb(root_),    BackupVerb(root_),
              HistoryVerb(root_),   AskVerb(root_),
              ChatVerb(root_),      EncodeVerb(root_),
              StatsVerb(root_),     DoctorVerb(root_),
              VerifyVerb(root_),    CompactVerb(root_),
              BenchTtftVerb(root_), BenchScoreVerb(root_),
              DemoVerb(root_),      ServeVerb(root_, &options_),
              KeysVerb(root_),      QuotaVerb(root_),
              McpVerb(root_)};
    root_.footer(
        "First steps:\n"
        "  inferscale add \"Ana moved to Lisbon in May.\" --speaker Ana\n"
        "  inferscale import chat.jsonl\n"
        "  inferscale ask \"Where does Ana live?\" --explain\n"
        "\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 130 interrupted.");
  }
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Throws CLI::ParseError.
  Status Parse(int argc, char** argv) {
    root_.parse(argc, argv);
    return FinishOptions(root_, &options_);
  }

  CLI::App& root() { return root_; }
  Options& options() { return options_; }
  const std::vector<Verb>& verbs() const { return verbs_; }

 private:
  Options options_;
  CLI::App root_;
  std::vector<Verb> verbs_;
};

Result<Options> ReadAgain(int argc, char** argv) {
  CommandLine line;
  try {
    INFERSCALE_TRY(line.Parse(argc, argv));
  } catch (const CLI::ParseError& error) {  // the environment does not change, but who knows
    return Fail(Code::kInvalid, "{}", error.what());
  }
  return line.options();
}

int Main(int argc, char** argv) {
  CommandLine line;
  try {
    if (const Status status = line.Parse(argc, argv); !status) {
      Say(status.error().message);
      return kExitUsage;
    }
  } catch (const CLI::ParseError& error) {
    return ReportParse(line.root(), error);
  }
  Options& options = line.options();
  options.read_again = [=] { return ReadAgain(argc, argv); };
  SetUpLog(options.verbose);
  CatchInterrupt();
  for (const Verb& verb : line.verbs()) {
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
