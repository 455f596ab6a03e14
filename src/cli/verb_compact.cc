#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <memory>

#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

std::string Describe(const UnusedKv& kv) {
  return fmt::format("{} of KV for {}{}", FormatBytes(kv.bytes),
                     kv.label.empty() ? "an unknown model" : kv.label,
                     kv.used_ms == 0 ? "" : ", last used on " + RenderDate(kv.used_ms));
}

boost::json::array UnusedToJson(const std::vector<UnusedKv>& all) {
  boost::json::array out;
  for (const UnusedKv& kv : all) {
    out.push_back({{"label", kv.label},
                   {"used_ms", kv.used_ms},
                   {"records", kv.records},
                   {"bytes", kv.bytes}});
  }
  return out;
}

Result<int> Run(bool drop_unused, const Options& options) {
  // The model tells what is in use; to look at what is not, it need not be loaded.
  const bool load = drop_unused && NamesEngine(options.app);
  INFERSCALE_ASSIGN(const auto app,
                    OpenApplication(options.app, load ? Need::kAnswer : Need::kFacts));
  INFERSCALE_ASSIGN(const CompactResult result, app->Compact(drop_unused));
  const CompactReport& report = result.files;
  if (options.json()) {
    PrintJson({{"segments_rewritten", report.segments_rewritten},
               {"segments_removed", report.segments_removed},
               {"segments_busy", report.segments_busy},
               {"bytes_freed", report.bytes_freed},
               {"unused", UnusedToJson(result.unused)},
               {"unused_dropped", drop_unused}});
  } else {
    for (const UnusedKv& kv : result.unused) {
      Print(fmt::format("{}  {}\n", drop_unused ? "Dropped  " : "Unused   ", Describe(kv)));
    }
    if (!drop_unused && !result.unused.empty()) {
      Print("           inferscale compact --unused-models drops it\n");
    }
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
  auto drop_unused = std::make_shared<bool>(false);
  CLI::App* command = AddCommand(
      root, "compact", "Rewrite the files, so that what was deleted leaves the disk",
      {"inferscale compact", "inferscale compact --unused-models", "inferscale compact -o json"});
  command->add_flag("--unused-models", *drop_unused,
                    "Also drop the KV of every model and --window but those given or configured "
                    "now; without a --model, but those used last");
  return {command, [drop_unused](const Options& options) { return Run(*drop_unused, options); }};
}

}  // namespace inferscale
