#include <fmt/format.h>

#include <boost/json/array.hpp>

#include "cli/fact_view.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

struct Args {
  std::string filter;
  size_t limit = 100;
  size_t offset = 0;
  bool newest = false;
};

Result<int> Run(const Args& args, const Options& options) {
  INFERSCALE_ASSIGN(const Filter filter, ParseFilterFlag(args.filter));
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kFacts));
  ListQuery query;
  query.scope = options.QueryScope();
  query.filter = &filter;
  query.limit = args.limit;
  query.offset = args.offset;
  query.newest_first = args.newest;
  INFERSCALE_ASSIGN(const auto facts, app->facts().List(query));
  if (options.json()) {
    boost::json::array items;
    for (const Fact& fact : facts) items.push_back(FactToJson(fact));
    PrintJson({{"facts", std::move(items)}});
    return kExitOk;
  }
  const bool every_user = query.scope.user.empty();
  if (facts.empty()) {
    Say(every_user ? "no facts" : fmt::format("no facts of user {}", options.scope.user));
    return kExitOk;
  }
  std::vector<Table::Column> columns = {{"ID"}, {"DATE", Align::kRight}, {"SPEAKER"}, {"TEXT"}};
  if (every_user) columns.insert(columns.begin() + 1, {"USER"});
  Table table(columns);
  for (const Fact& fact : facts) {
    std::vector<std::string> cells = {fact.id, FactDay(fact), fact.speaker, fact.text};
    if (every_user) cells.insert(cells.begin() + 1, fact.scope.user);
    table.Add(std::move(cells));
  }
  PrintTable(table);
  if (facts.size() == args.limit) {
    Say(fmt::format("there may be more: --offset {}", args.offset + args.limit));
  }
  return kExitOk;
}

}  // namespace

Verb ListVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* command =
      AddCommand(root, "list", "List facts, oldest first",
                 {"inferscale list --user ana --limit 20",
                  "inferscale list --user '*' --filter '{\"speaker\":\"Ana\"}' -o json",
                  "inferscale list --newest --limit 5"});
  command->add_option("--filter", args->filter, "Only facts that pass it, in Mem0's JSON form")
      ->type_name("JSON");
  command->add_option("--limit", args->limit, "At most this many")
      ->check(CLI::Range(size_t{1}, size_t{1000000}))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--offset", args->offset, "Skip this many")
      ->check(CLI::Range(size_t{0}, size_t{1} << 40))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--newest", args->newest, "Newest first");
  return {command, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
