#include <fmt/format.h>

#include <boost/json/array.hpp>

#include "cli/fact_view.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

struct Args {
  std::string query;
  size_t limit = 10;
  std::string filter;
};

Result<int> Run(const Args& args, const Options& options) {
  INFERSCALE_TRY(CheckText("QUERY", args.query));
  INFERSCALE_ASSIGN(const Filter filter, ParseFilterFlag(args.filter));
  if (options.scope.user == "*") {
    return Fail(Code::kInvalid, "search needs one --user, not '*'");
  }
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kSearch));
  INFERSCALE_ASSIGN(const auto hits, app->Search(options.scope, args.query, args.limit, &filter));
  if (options.json()) {
    boost::json::array items;
    for (const SearchResult& result : hits) {
      boost::json::object item = FactToJson(result.fact);
      item["score"] = result.hit.score;
      item["cosine"] = result.hit.cosine;
      item["bm25"] = result.hit.bm25;
      items.push_back(std::move(item));
    }
    PrintJson({{"results", std::move(items)}});
    return kExitOk;
  }
  if (hits.empty()) {
    Say(fmt::format("nothing found for user {}", options.scope.user));
    return kExitOk;
  }
  Table table({{"SCORE", Align::kRight}, {"ID"}, {"DATE", Align::kRight}, {"SPEAKER"}, {"TEXT"}});
  for (const SearchResult& result : hits) {
    table.Add({fmt::format("{:.4f}", result.hit.score), result.fact.id, FactDay(result.fact),
               result.fact.speaker, result.fact.text});
  }
  PrintTable(table);
  return kExitOk;
}

}  // namespace

Verb SearchVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* command =
      AddCommand(root, "search", "Find the facts that a question needs",
                 {"inferscale search \"Where does Ana live?\"",
                  "inferscale search holidays --user ana --limit 3 -o json",
                  "inferscale search food --filter '{\"created_at\":{\"gte\":\"2024-07-01\"}}'"});
  command->add_option("QUERY", args->query, "What to look for")->required();
  command->add_option("--limit", args->limit, "At most this many")
      ->check(CLI::Range(size_t{1}, size_t{10000}))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--filter", args->filter, "Only facts that pass it, in Mem0's JSON form")
      ->type_name("JSON");
  return {command, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
