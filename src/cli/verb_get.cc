#include "cli/fact_view.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

Result<int> Run(const std::string& id, const Options& options) {
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kFacts));
  INFERSCALE_ASSIGN(const Fact fact, app->facts().Get(options.scope.tenant, id));
  ShowFact(fact, options);
  return kExitOk;
}

}  // namespace

Verb GetVerb(CLI::App& root) {
  auto id = std::make_shared<std::string>();
  CLI::App* command = AddCommand(root, "get", "Show one fact",
                                 {"inferscale get 0b9f6c1e-5a57-4e0c-9a51-2f6f0c1f7a10",
                                  "inferscale get 0b9f6c1e-5a57-4e0c-9a51-2f6f0c1f7a10 -o json"});
  command->add_option("ID", *id, "Of the fact; add, list and search print it")->required();
  return {command, [id](const Options& options) { return Run(*id, options); }};
}

}  // namespace inferscale
