// One verb of the command, and what verbs share.
#ifndef INFERSCALE_CLI_COMMAND_H_
#define INFERSCALE_CLI_COMMAND_H_

#include <CLI/App.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/app.h"
#include "base/result.h"
#include "cli/options.h"

namespace inferscale {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNotFound = 3;
constexpr int kExitInterrupted = 130;

// kInvalid is a usage error, kNotFound and kCancelled have their own codes, the rest has failed.
int ExitCode(Code code);

struct Verb {
  CLI::App* command = nullptr;
  std::function<Result<int>(const Options&)> run;  // the exit code
};

// A verb with the house's help: what it does, its options, then `examples`, one a line.
CLI::App* AddCommand(CLI::App& parent, const std::string& name, const std::string& what,
                     const std::vector<std::string>& examples);
// A positional of any number of texts, which may have any content.
void AddTexts(CLI::App* command, const std::string& name, std::vector<std::string>* texts,
              const std::string& help);
void UseHouseHelp(CLI::App& root);

// Whether a language model is named: a file, or a server.
bool NamesEngine(const AppOptions& options);

// Opens the application. Whatever is wrong here is no usage error and nothing "not found": the exit
// code is kExitFailed.
Result<std::unique_ptr<App>> OpenApplication(const AppOptions& options, Need need);

// The value of a flag like --when as Unix ms; nullopt if it was not given.
Result<std::optional<int64_t>> ParseTimeFlag(std::string_view flag, const std::string& value);
// kInvalid, naming the flag, unless it is UTF-8.
Status CheckText(std::string_view what, std::string_view text);
Result<Filter> ParseFilterFlag(const std::string& json);

// --infer of verbs that add facts.
void AddInferFlag(CLI::App* command, bool* infer);
// --heal of verbs that hold dialogues.
void AddHealFlag(CLI::App* command, bool* heal);

}  // namespace inferscale

#endif  // INFERSCALE_CLI_COMMAND_H_
