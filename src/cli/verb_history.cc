#include <fmt/format.h>

#include <boost/json/array.hpp>

#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

Result<int> Run(const std::string& id, const Options& options) {
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kFacts));
  INFERSCALE_ASSIGN(const auto entries, app->facts().History(options.scope.tenant, id));
  if (options.json()) {
    boost::json::array items;
    for (const HistoryEntry& entry : entries) {
      items.push_back({{"version", entry.version},
                       {"event", entry.event},
                       {"old_text", entry.old_text},
                       {"new_text", entry.new_text},
                       {"at", FormatTime(entry.at_ms)}});
    }
    PrintJson({{"id", id}, {"history", std::move(items)}});
    return kExitOk;
  }
  Table table({{"VERSION", Align::kRight}, {"EVENT"}, {"AT"}, {"TEXT"}});
  for (const HistoryEntry& entry : entries) {
    table.Add({fmt::format("{}", entry.version), entry.event, FormatTime(entry.at_ms),
               entry.new_text.empty() ? "-" : entry.new_text});
  }
  PrintTable(table);
  return kExitOk;
}

}  // namespace

Verb HistoryVerb(CLI::App& root) {
  auto id = std::make_shared<std::string>();
  CLI::App* command =
      AddCommand(root, "history", "Show how one fact came to be what it is",
                 {"inferscale history 0b9f6c1e-5a57-4e0c-9a51-2f6f0c1f7a10",
                  "inferscale history 0b9f6c1e-5a57-4e0c-9a51-2f6f0c1f7a10 -o json"});
  command->add_option("ID", *id, "Of the fact, which may be deleted by now")->required();
  return {command, [id](const Options& options) { return Run(*id, options); }};
}

}  // namespace inferscale
