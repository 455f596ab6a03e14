#include <fmt/format.h>

#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

boost::json::object KvToJson(const KvStoreStats& kv) {
  return {{"records", kv.records},           {"live_bytes", kv.live_bytes},
          {"disk_bytes", kv.disk_bytes},     {"segments", kv.segments},
          {"arena_bytes", kv.arena_bytes},   {"arena_budget", kv.arena_budget},
          {"pinned_bytes", kv.pinned_bytes}, {"arena_hits", kv.arena_hits},
          {"disk_reads", kv.disk_reads},     {"misses", kv.misses},
          {"evictions", kv.evictions},       {"corrupt_records", kv.corrupt_records}};
}

Result<int> Run(const Options& options) {
  // KV is counted for one model, so the counts of encoded episodes need it.
  const bool model = NamesEngine(options.app);
  INFERSCALE_ASSIGN(const auto app,
                    OpenApplication(options.app, model ? Need::kAnswer : Need::kFacts));
  INFERSCALE_ASSIGN(const AppStats stats, app->Stats());
  if (options.json()) {
    PrintJson(
        {{"facts", stats.facts.facts},
         {"users", stats.facts.users},
         {"episodes", stats.facts.episodes},
         {"episodes_encoded", stats.facts.episodes_encoded},
         {"history_entries", stats.facts.history_entries},
         {"memory_bytes", stats.facts.file_bytes},
         {"stale_kv", stats.stale_kv},
         {"kv_codec", KvCodecName(options.app.kv_codec)},
         {"kv_token_bytes", stats.record_shape
                                ? boost::json::value(stats.record_shape->TokenBytes())
                                : boost::json::value(nullptr)},
         {"kv", stats.kv ? boost::json::value(KvToJson(*stats.kv)) : boost::json::value(nullptr)}});
    return kExitOk;
  }
  std::vector<std::pair<std::string, std::string>> items = {
      {"data", options.app.data_dir},
      {"facts", fmt::format("{} of {} users", FormatCount(stats.facts.facts),
                            FormatCount(stats.facts.users))},
      {"history", fmt::format("{} entries", FormatCount(stats.facts.history_entries))},
      {"episodes", model ? fmt::format("{}, {} of them encoded", FormatCount(stats.facts.episodes),
                                       FormatCount(stats.facts.episodes_encoded))
                         : FormatCount(stats.facts.episodes)},
      {"text on disk", FormatBytes(stats.facts.file_bytes)}};
  if (stats.kv) {
    items.emplace_back(
        "KV on disk",
        fmt::format("{} of records in {} ({} records, {} segments)",
                    FormatBytes(stats.kv->live_bytes), FormatBytes(stats.kv->disk_bytes),
                    FormatCount(stats.kv->records), FormatCount(stats.kv->segments)));
    if (stats.record_shape) {
      items.emplace_back("KV of a token",
                         fmt::format("{} (codec {})", FormatBytes(stats.record_shape->TokenBytes()),
                                     KvCodecName(options.app.kv_codec)));
    }
    items.emplace_back("KV in memory",
                       fmt::format("at most {}", FormatBytes(stats.kv->arena_budget)));
    if (stats.kv->corrupt_records > 0) {
      items.emplace_back("damaged KV", fmt::format("{} records dropped; they are encoded again",
                                                   FormatCount(stats.kv->corrupt_records)));
    }
  }
  Print(Listing(items));
  return kExitOk;
}

}  // namespace

Verb StatsVerb(CLI::App& root) {
  CLI::App* command = AddCommand(root, "stats", "Count what is stored and what it takes",
                                 {"inferscale stats", "inferscale stats -o json"});
  return {command, [](const Options& options) { return Run(options); }};
}

}  // namespace inferscale
