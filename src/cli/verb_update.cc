#include "cli/fact_view.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

struct Args {
  std::string id;
  std::optional<std::string> text;
  std::optional<std::string> speaker;
  std::string when;
  std::optional<std::string> metadata;
  std::string expires;
};

Result<FactUpdate> MakeUpdate(const Args& args) {
  FactUpdate update;
  update.text = args.text;
  update.speaker = args.speaker;
  update.metadata = args.metadata;
  if (args.speaker) INFERSCALE_TRY(CheckText("--speaker", *args.speaker));
  INFERSCALE_ASSIGN(update.when_ms, ParseTimeFlag("--when", args.when));
  if (args.expires == "never") {
    update.expires_ms.emplace(std::nullopt);
  } else if (!args.expires.empty()) {
    INFERSCALE_ASSIGN(auto time, ParseTimeFlag("--expires", args.expires));
    update.expires_ms.emplace(time);
  }
  if (!update.text && !update.speaker && !update.when_ms && !update.metadata &&
      !update.expires_ms) {
    return Fail(Code::kInvalid,
                "nothing to change: give --text, --speaker, --when, --metadata or --expires");
  }
  return update;
}

Result<int> Run(const Args& args, const Options& options) {
  INFERSCALE_ASSIGN(const FactUpdate update, MakeUpdate(args));
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kSearch));
  INFERSCALE_ASSIGN(const Fact fact, app->Update(options.scope.tenant, args.id, update));
  ShowFact(fact, options);
  return kExitOk;
}

}  // namespace

Verb UpdateVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* command =
      AddCommand(root, "update", "Change one fact; its KV is made anew",
                 {"inferscale update ID --text \"Ana lives in Porto now.\"",
                  "inferscale update ID --metadata '{\"topic\":\"home\"}' --expires 2030-01-01",
                  "inferscale update ID --expires never"});
  command->add_option("ID", args->id, "Of the fact")->required();
  command->add_option("--text", args->text, "Its new text")->type_name("TEXT");
  command->add_option("--speaker", args->speaker, "Who said it")->type_name("NAME");
  command->add_option("--when", args->when, "When it was said or happened, ISO 8601")
      ->type_name("TIME");
  command->add_option("--metadata", args->metadata, "The JSON object to keep with it")
      ->type_name("JSON");
  command->add_option("--expires", args->expires, "When to forget it, ISO 8601, or never")
      ->type_name("TIME");
  return {command, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
