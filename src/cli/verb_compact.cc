#include <fmt/format.h>

#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

Result<int> Run(const Options& options) {
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kFacts));
  INFERSCALE_ASSIGN(const CompactReport report, app->Compact());
  if (options.json()) {
    PrintJson({{"segments_rewritten", report.segments_rewritten},
               {"segments_removed", report.segments_removed},
               {"segments_busy", report.segments_busy},
               {"bytes_freed", report.bytes_freed}});
  } else {
    Print(fmt::format("Compacted: {} freed, {} segments rewritten, {} removed\n",
                      FormatBytes(report.bytes_freed), FormatCount(report.segments_rewritten),
                      FormatCount(report.segments_removed)));
  }
  if (report.segments_busy == 0) return kExitOk;
  return Fail(Code::kConflict,
              "{} files are in use by another process, and what was deleted may still be in them: "
              "stop it, or run compact again when it has ended",
              report.segments_busy);
}

}  // namespace

Verb CompactVerb(CLI::App& root) {
  CLI::App* command =
      AddCommand(root, "compact", "Rewrite the files, so that what was deleted leaves the disk",
                 {"inferscale compact", "inferscale compact -o json"});
  return {command, [](const Options& options) { return Run(options); }};
}

}  // namespace inferscale
