#include <fmt/format.h>

#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

struct Args {
  std::vector<std::string> ids;
  bool yes = false;
};

std::string DescribeScope(const Scope& scope) {
  std::string out;
  for (const auto& [name, value] :
       {std::pair("user", &scope.user), std::pair("agent", &scope.agent),
        std::pair("run", &scope.run)}) {
    if (!value->empty()) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, *value);
  }
  return out.empty() ? "every user" : out;
}

int PrintDeleted(size_t count, const Options& options) {
  if (options.json()) {
    PrintJson({{"deleted", count}});
  } else {
    Print(fmt::format("{} deleted\n", FormatCount(count)));
  }
  return kExitOk;
}

Result<int> DeleteScope(const Args& args, const Options& options) {
  // A scope from the environment or a file is easily forgotten, and deleting is for good.
  const auto typed = [&](const char* name) { return options.typed.contains(name); };
  if (!typed("user") && !typed("agent") && !typed("run")) {
    return Fail(Code::kInvalid,
                "what to delete? Give ids, or --user, --agent or --run on the command line");
  }
  const Scope scope = options.QueryScope();
  if (!args.yes) {
    return Fail(Code::kInvalid, "this would delete all facts of {}; add --yes to do so",
                DescribeScope(scope));
  }
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kFacts));
  INFERSCALE_ASSIGN(const Erased erased, app->DeleteScope(scope));
  return PrintDeleted(erased.facts, options);
}

Result<int> Run(const Args& args, const Options& options) {
  if (args.ids.empty()) return DeleteScope(args, options);
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kFacts));
  INFERSCALE_ASSIGN(const Erased erased, app->Delete(options.scope.tenant, args.ids));
  const size_t count = erased.facts;
  PrintDeleted(count, options);
  if (count < args.ids.size()) {
    return Fail(Code::kNotFound, "{} of {} ids were not found", args.ids.size() - count,
                args.ids.size());
  }
  return kExitOk;
}

}  // namespace

Verb DeleteVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* command = AddCommand(root, "delete", "Forget facts: text, history, vector and KV",
                                 {"inferscale delete 0b9f6c1e-5a57-4e0c-9a51-2f6f0c1f7a10",
                                  "inferscale delete --user ana --run chat-7 --yes",
                                  "inferscale delete --user ana --yes && inferscale compact"});
  AddTexts(command, "ID", &args->ids, "Of facts; without any, all of the scope typed here go");
  command->add_flag("--yes", args->yes, "Delete a whole scope without asking");
  return {command, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
