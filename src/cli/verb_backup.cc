#include <fmt/format.h>

#include "app/backup.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

Result<int> Run(const std::string& target, const Options& options) {
  INFERSCALE_ASSIGN(const BackupReport report, BackUp(options.app.data_dir, target));
  if (options.json()) {
    PrintJson({{"facts", report.facts},
               {"kv_records", report.kv_records},
               {"bytes", report.bytes},
               {"dir", target}});
  } else {
    Print(
        fmt::format("{} facts and {} records of KV in {}, {}. It is a data directory itself: "
                    "--data-dir {} uses it.\n",
                    FormatCount(report.facts), FormatCount(report.kv_records), target,
                    FormatBytes(report.bytes), target));
  }
  return kExitOk;
}

}  // namespace

Verb BackupVerb(CLI::App& root) {
  auto target = std::make_shared<std::string>();
  CLI::App* command = AddCommand(
      root, "backup", "Copy the data directory, also while a gateway uses it",
      {"inferscale backup /backups/2026-11-30", "inferscale backup /backups/today -o json",
       "inferscale ask \"Where does Ana live?\" --data-dir /backups/2026-11-30"});
  command->add_option("DIR", *target, "Folder of the copy, new or empty")->required();
  return {command, [target](const Options& options) { return Run(*target, options); }};
}

}  // namespace inferscale
