#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/version.hpp>
#include <filesystem>
#include <thread>

#include "cli/output.h"
#include "cli/temp_dir.h"
#include "cli/verbs.h"
#include "cli/verdict_view.h"

namespace inferscale {
namespace {

constexpr uint64_t kLittleSpace = uint64_t{1} << 30;

enum class Health : uint8_t { kOk, kWarning, kBad };

struct Check {
  std::string name;
  Health health = Health::kOk;
  std::string detail;
  std::string advice;  // what to do, unless all is well
};

std::string_view HealthName(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarning:
      return "warning";
    case Health::kBad:
      return "bad";
  }
  return "bad";
}

std::filesystem::path ExistingParent(std::filesystem::path path) {
  std::error_code ignored;
  while (!std::filesystem::exists(path, ignored) && path.has_relative_path()) {
    path = path.parent_path();
  }
  return path.empty() ? "." : path;
}

Check CheckVersions() {
  return {"versions", Health::kOk,
          fmt::format("inferscale {}, SQLite {}, Boost {}.{}.{}, {} cores", INFERSCALE_VERSION,
                      sqlite3_libversion(), BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000,
                      BOOST_VERSION % 100, std::thread::hardware_concurrency()),
          ""};
}

Check CheckFolder(const std::string& folder) {
  std::error_code failed;
  if (std::filesystem::exists(folder, failed) && !std::filesystem::is_directory(folder, failed)) {
    return {"data", Health::kBad, folder + " is not a folder", "give another one with --data-dir"};
  }
  const auto there = ExistingParent(std::filesystem::absolute(folder));
  if (access(there.c_str(), W_OK | X_OK) != 0) {
    return {"data", Health::kBad, fmt::format("{} can't be written", there.string()),
            "give another folder with --data-dir, or change its rights"};
  }
  const bool fresh = !std::filesystem::exists(folder, failed);
  return {"data", Health::kOk, folder + (fresh ? " (does not exist yet)" : ""), ""};
}

Check CheckSpace(const std::string& folder) {
  std::error_code failed;
  const auto space =
      std::filesystem::space(ExistingParent(std::filesystem::absolute(folder)), failed);
  if (failed) return {"disk", Health::kWarning, failed.message(), "check the disk"};
  const bool little = space.available < kLittleSpace;
  return {"disk", little ? Health::kWarning : Health::kOk,
          fmt::format("{} free", FormatBytes(space.available)),
          little ? "KV needs room: free some, or set --disk-mb" : ""};
}

// Neither is bad: answers are right either way.
Check CheckQuality(App& app) {
  const auto verdict = app.Verdict();
  if (!verdict) return {"quality", Health::kWarning, verdict.error().message, ""};
  std::string advice;
  if (!*verdict) advice = "inferscale verify measures how near injected KV comes to text";
  if (*verdict && !(*verdict)->passed) {
    advice = "mode auto computes facts from text; try another --window, --plain or --kv-codec";
  }
  return {"quality", advice.empty() ? Health::kOk : Health::kWarning,
          *verdict ? DescribeVerdict(*verdict) : "not measured with this model and settings",
          std::move(advice)};
}

// What opens, and what does not: facts, then the embedder, then the language model, so that the
// first bad check is the reason.
void CheckApp(const Options& options, std::vector<Check>* checks) {
  AppOptions app_options = options.app;
  std::error_code ignored;
  std::optional<TempDir> temporary;
  if (!std::filesystem::exists(app_options.data_dir, ignored)) {
    // Looking must not leave anything behind.
    auto made = TempDir::Make();
    if (!made) {
      checks->push_back({"facts", Health::kBad, made.error().message, "check TMPDIR"});
      return;
    }
    temporary.emplace(std::move(*made));
    app_options.data_dir = temporary->path();
  }
  auto facts = OpenApplication(app_options, Need::kFacts);
  if (!facts) {
    checks->push_back({"facts", Health::kBad, facts.error().message,
                       "restore the folder from a backup, or start with another --data-dir"});
    return;
  }
  if (const auto stats = (*facts)->Stats(); stats) {
    checks->push_back({"facts", Health::kOk,
                       fmt::format("{} of {} users", FormatCount(stats->facts.facts),
                                   FormatCount(stats->facts.users)),
                       ""});
    if (stats->kv) {
      const bool damaged = stats->kv->corrupt_records > 0;
      checks->push_back({"kv", damaged ? Health::kWarning : Health::kOk,
                         fmt::format("{} records, {}{}", FormatCount(stats->kv->records),
                                     FormatBytes(stats->kv->disk_bytes),
                                     damaged ? ", some damaged and dropped" : ""),
                         damaged ? "run inferscale encode" : ""});
    }
  } else {
    checks->push_back({"facts", Health::kBad, stats.error().message, "run inferscale compact"});
  }
  const auto sound = (*facts)->Verify();
  if (!sound) {
    checks->push_back({"files", Health::kBad, sound.error().message,
                       "restore the folder from a backup, or start with another --data-dir"});
  } else {
    checks->push_back(
        {"files", *sound ? Health::kOk : Health::kWarning,
         *sound ? "both databases are sound" : "the catalog of KV was damaged and begins anew",
         *sound ? "" : "run inferscale encode"});
  }
  facts->reset();
  if (auto search = OpenApplication(app_options, Need::kSearch); !search) {
    checks->push_back({"embedder", Health::kBad, search.error().message,
                       "set --embed-model to a GGUF file of an embedding model"});
    return;
  }
  checks->push_back(
      {"embedder", Health::kOk,
       app_options.embed_model.empty() ? app_options.embed_url : app_options.embed_model, ""});
  auto answers = OpenApplication(app_options, Need::kAnswer);
  if (!answers) {
    checks->push_back({"model", Health::kBad, answers.error().message,
                       app_options.engine == EngineKind::kVllm
                           ? "start vLLM with the connector, or correct --url"
                           : "set --model to a GGUF file of a chat model"});
    return;
  }
  const ModelInfo& model = (*answers)->engine().info();
  if (const auto stats = (*answers)->Stats(); stats && stats->record_shape) {
    checks->push_back(
        {"codec", Health::kOk,
         fmt::format("{}: KV is stored as {}, {} a token", KvCodecName(app_options.kv_codec),
                     DtypeName(stats->record_shape->dtype),
                     FormatBytes(stats->record_shape->TokenBytes())),
         ""});
  }
  checks->push_back(
      {"model", Health::kOk,
       fmt::format("{}, {}, {}, {} tokens of context, {}", model.name, model.description,
                   model.shape.ToString(), FormatCount(model.context_tokens), model.engine_version),
       ""});
  checks->push_back(
      {"self-test", model.self_test.passed ? Health::kOk : Health::kBad, model.self_test.summary,
       model.self_test.passed ? "" : "answers are right but slow: every fact is prefilled"});
  if (model.injection) checks->push_back(CheckQuality(**answers));
}

Result<int> Run(const Options& options) {
  std::vector<Check> checks = {CheckVersions(), CheckFolder(options.app.data_dir),
                               CheckSpace(options.app.data_dir)};
  const bool usable = checks[1].health == Health::kOk;
  if (usable) CheckApp(options, &checks);
  bool well = true;
  boost::json::array items;
  Table table({{"CHECK"}, {"STATE"}, {"DETAIL"}});
  for (const Check& check : checks) {
    well = well && check.health != Health::kBad;
    items.push_back({{"name", check.name},
                     {"state", HealthName(check.health)},
                     {"detail", check.detail},
                     {"advice", check.advice}});
    table.Add({check.name, std::string(HealthName(check.health)), check.detail});
    if (!check.advice.empty()) table.Add({"", "", "-> " + check.advice});
  }
  if (options.json()) {
    PrintJson({{"ok", well}, {"checks", std::move(items)}});
  } else {
    Print(table.ToString(0));
    Print(well ? "\nAll is well.\n" : "\nSomething is wrong; see the lines with ->.\n");
  }
  return well ? kExitOk : kExitFailed;
}

}  // namespace

Verb DoctorVerb(CLI::App& root) {
  CLI::App* command =
      AddCommand(root, "doctor", "Check models, data and disk, and say what to do",
                 {"inferscale doctor", "inferscale doctor --model new.gguf -o json"});
  return {command, [](const Options& options) { return Run(options); }};
}

}  // namespace inferscale
