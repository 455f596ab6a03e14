#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include "cli/output.h"
#include "cli/verbs.h"
#include "server/quota_api.h"

namespace inferscale {
namespace {

struct Args {
  TenantQuota quota;
  uint64_t kv_mb = 0;
  CLI::App* set = nullptr;
};

std::string Limit(uint64_t limit) { return limit == 0 ? "-" : FormatCount(limit); }

Result<int> Set(const Args& args, const Options& options) {
  if (!options.typed.contains("tenant")) {
    return Fail(Code::kInvalid, "a quota of whom? Give --tenant on the command line");
  }
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kFacts));
  TenantQuota quota = args.quota;
  quota.kv_bytes = args.kv_mb << 20;
  INFERSCALE_TRY(app->facts().PutQuota(options.scope.tenant, quota));
  if (options.json()) {
    INFERSCALE_ASSIGN(const TenantUse use, app->UseOf(options.scope.tenant));
    PrintJson(UseToJson(use));
  } else {
    Say(quota == TenantQuota{} ? "this tenant has no quota now" : "the quota holds from now on");
  }
  return kExitOk;
}

Result<int> List(const Options& options) {
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kFacts));
  INFERSCALE_ASSIGN(const std::vector<TenantUse> uses, app->UseOfLimited(SIZE_MAX));
  if (options.json()) {
    PrintJson({{"quotas", UsesToJson(uses)}});
    return kExitOk;
  }
  if (uses.empty()) Say("no tenant has a quota");
  Table table({{"TENANT"},
               {"FACTS", Align::kRight},
               {"OF", Align::kRight},
               {"KV", Align::kRight},
               {"OF", Align::kRight},
               {"TOKENS A MINUTE", Align::kRight}});
  for (const auto& [tenant, quota, facts, kv_bytes] : uses) {
    table.Add({tenant, FormatCount(facts), Limit(quota.facts), FormatBytes(kv_bytes),
               quota.kv_bytes == 0 ? "-" : FormatBytes(quota.kv_bytes),
               Limit(quota.encode_tokens_per_minute)});
  }
  if (!table.empty()) PrintTable(table);
  return kExitOk;
}

}  // namespace

Verb QuotaVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* command = AddCommand(
      root, "quota", "Say what a tenant may have",
      {"inferscale quota set --tenant acme --max-facts 100000 --max-kv-mb 2048",
       "inferscale quota set --tenant acme   # no limit any more", "inferscale quota list"});
  command->require_subcommand(1);
  CLI::App* set =
      AddCommand(*command, "set", "Set a tenant's quota, whole: what is not said is not limited",
                 {"inferscale quota set --tenant acme --encode-per-minute 20000"});
  const CLI::Range any(uint64_t{0}, uint64_t{1} << 40);
  set->add_option("--max-facts", args->quota.facts, "Facts; more are refused")
      ->check(any)
      ->type_name("N");
  set->add_option("--max-kv-mb", args->kv_mb, "KV on disk, in MiB; above it facts stay text")
      ->check(any)
      ->type_name("N");
  set->add_option("--encode-per-minute", args->quota.encode_tokens_per_minute,
                  "Tokens that a gateway encodes a minute; facts wait as text")
      ->check(any)
      ->type_name("N");
  AddCommand(*command, "list", "The tenants that have quotas, and what they use",
             {"inferscale quota list", "inferscale quota list -o json"});
  args->set = set;
  return {command, [args](const Options& options) {
            return args->set->parsed() ? Set(*args, options) : List(options);
          }};
}

}  // namespace inferscale
