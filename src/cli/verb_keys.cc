#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <filesystem>
#include <map>

#include "base/clock.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "server/key_api.h"

namespace inferscale {
namespace {

struct Args {
  KeySpec spec;
  std::string id;
  CLI::App* create = nullptr;
  CLI::App* rotate = nullptr;
  CLI::App* revoke = nullptr;
};

int Show(const NewKey& made, const Options& options) {
  if (options.json()) {
    PrintJson(NewKeyToJson(made));
    return kExitOk;
  }
  Print(made.key + "\n");
  Say(fmt::format("key {} of tenant {}, access {}; it is not shown again", made.info.id,
                  made.info.spec.tenant, KeyAccessName(made.info.spec.access)));
  return kExitOk;
}

int Show(const std::vector<KeyInfo>& keys, const Options& options) {
  if (options.json()) {
    boost::json::array out;
    for (const KeyInfo& info : keys) out.push_back(KeyToJson(info));
    PrintJson({{"keys", std::move(out)}});
    return kExitOk;
  }
  if (keys.empty()) Say("no key was made yet");
  Table table({{"ID"},
               {"TENANT"},
               {"ACCESS"},
               {"PER MINUTE", Align::kRight},
               {"MADE"},
               {"STATE"},
               {"NAME"}});
  for (const KeyInfo& info : keys) {
    const KeySpec& spec = info.spec;
    table.Add({info.id, spec.tenant, std::string(KeyAccessName(spec.access)),
               spec.per_minute == 0 ? "-" : FormatCount(spec.per_minute),
               FormatTime(info.created_ms), info.revoked_ms ? "revoked" : "valid", spec.name});
  }
  if (!table.empty()) PrintTable(table);
  return kExitOk;
}

Result<int> Run(const Args& args, const Options& options) {
  std::error_code error;
  std::filesystem::create_directories(options.app.data_dir, error);
  const SystemClock clock;
  INFERSCALE_ASSIGN(const auto keys, KeyStore::Open(clock, options.app.data_dir + "/keys.db"));
  if (args.create->parsed()) {
    KeySpec spec = args.spec;
    spec.tenant = options.scope.tenant;
    INFERSCALE_ASSIGN(const NewKey made, keys->Create(spec));
    return Show(made, options);
  }
  if (args.rotate->parsed()) {
    INFERSCALE_ASSIGN(const NewKey made, keys->Rotate(args.id));
    return Show(made, options);
  }
  if (args.revoke->parsed()) {
    INFERSCALE_TRY(keys->Revoke(args.id));
    if (options.json()) PrintJson({{"revoked", args.id}});
    if (!options.json()) Print(fmt::format("{} is revoked\n", args.id));
    return kExitOk;
  }
  INFERSCALE_ASSIGN(const std::vector<KeyInfo> infos, keys->List());
  return Show(infos, options);
}

}  // namespace

Verb KeysVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* keys = AddCommand(
      root, "keys", "Make, list and revoke keys for serve; also while it runs",
      {"inferscale keys create --access admin", "inferscale keys create --tenant acme --name app",
       "inferscale keys list", "inferscale keys revoke ID"});
  keys->require_subcommand(1);
  args->create = AddCommand(*keys, "create", "Make a key of --tenant; it is shown this once",
                            {"inferscale keys create --tenant acme --name \"chat bot\"",
                             "inferscale keys create --access read --per-minute 600"});
  const std::map<std::string, Access> accesses = {
      {"read", Access::kRead}, {"write", Access::kWrite}, {"admin", Access::kAdmin}};
  args->create
      ->add_option("--access", args->spec.access,
                   "read (and ask), write (also remember and delete) or admin (also keys)")
      ->transform(CLI::CheckedTransformer(accesses))
      ->type_name("KIND")
      ->default_str("write");
  args->create->add_option("--name", args->spec.name, "What it is for")->type_name("TEXT");
  args->create
      ->add_option("--per-minute", args->spec.per_minute, "Requests a minute; 0: as serve says")
      ->type_name("N")
      ->capture_default_str();
  AddCommand(*keys, "list", "All keys, without their secrets",
             {"inferscale keys list", "inferscale keys list -o json"});
  args->rotate = AddCommand(*keys, "rotate", "A new secret for a key; the old one ends at once",
                            {"inferscale keys rotate ID", "inferscale keys rotate ID -o json"});
  args->rotate->add_option("ID", args->id, "Of the key")->required();
  args->revoke = AddCommand(
      *keys, "revoke", "End a key at once",
      {"inferscale keys revoke ID", "inferscale keys revoke ID && inferscale keys list"});
  args->revoke->add_option("ID", args->id, "Of the key")->required();
  return {keys, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
