// What every verb understands: where things are, whose facts, how much memory, which output.
#ifndef INFERSCALE_CLI_OPTIONS_H_
#define INFERSCALE_CLI_OPTIONS_H_

#include <CLI/App.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "app/app.h"
#include "base/result.h"

namespace inferscale {

enum class OutputFormat : uint8_t { kTable, kJson };

struct Options {
  AppOptions app;
  Scope scope;
  OutputFormat output = OutputFormat::kTable;
  int verbose = 0;
  std::string config;  // the file; empty if there is none
  // Names of the options that were typed and do not come from the environment or a file.
  std::set<std::string> typed;
  // What was given for each option of the command and of its verb, by name, wherever it came from.
  std::map<std::string, std::string> given;
  // The same command line with the file as it is now. Errors as of FinishOptions().
  std::function<Result<Options>()> read_again;

  // As given; FinishOptions puts them into `app`.
  std::string window = WindowStrategy{}.ToString();
  std::optional<uint32_t> auto_facts{};
  uint64_t arena_mb = 1024;
  uint64_t disk_mb = 0;

  // Of `serve`, which can change them while it runs.
  struct {
    MemoryMode mode = MemoryMode::kAuto;
    uint32_t per_minute = 0;
  } serve;

  Options() { scope.user = "default"; }
  bool json() const { return output == OutputFormat::kJson; }
  // For reading: user "*" means every user.
  Scope QueryScope() const;
  // What these options say of every question.
  AskRequest Request() const;
};

// Adds the options to `root`, each with its environment variable.
void AddGlobalOptions(CLI::App& root, Options* options);

// After parsing: fills what neither the command line nor the environment gave from the
// configuration file, then the defaults. A section of the file is of the verb of that name.
// kInvalid names the key or the option.
Status FinishOptions(CLI::App& root, Options* options);

// ${XDG_DATA_HOME:-~/.local/share}/inferscale and ${XDG_CONFIG_HOME:-~/.config}/inferscale.toml.
std::string DefaultDataDir();
std::string DefaultConfigFile();

}  // namespace inferscale

#endif  // INFERSCALE_CLI_OPTIONS_H_
