// What every verb understands: where things are, whose facts, how much memory, which output.
#ifndef INFERSCALE_CLI_OPTIONS_H_
#define INFERSCALE_CLI_OPTIONS_H_

#include <CLI/App.hpp>
#include <cstdint>
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
  std::string config;
  // Names of the options that were typed and do not come from the environment or a file.
  std::set<std::string> typed;

  // As given; FinishOptions puts them into `app`.
  std::string window = WindowStrategy{}.ToString();
  uint64_t arena_mb = 1024;
  uint64_t disk_mb = 0;

  Options() { scope.user = "default"; }
  bool json() const { return output == OutputFormat::kJson; }
  // For reading: user "*" means every user.
  Scope QueryScope() const;
};

// Adds the options to `root`, each with its environment variable.
void AddGlobalOptions(CLI::App& root, Options* options);

// After parsing: fills what neither the command line nor the environment gave from the
// configuration file, then the defaults. kInvalid names the key or the option.
Status FinishOptions(CLI::App& root, Options* options);

// ${XDG_DATA_HOME:-~/.local/share}/inferscale and ${XDG_CONFIG_HOME:-~/.config}/inferscale.toml.
std::string DefaultDataDir();
std::string DefaultConfigFile();

}  // namespace inferscale

#endif  // INFERSCALE_CLI_OPTIONS_H_
