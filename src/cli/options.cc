#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/utf8.h"

namespace inferscale {
namespace {

// "--data-dir" -> "INFERSCALE_DATA_DIR".
std::string EnvironmentName(std::string_view flag) {
  std::string name = "INFERSCALE_";
  for (const char c : flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

template <typename T>
CLI::Option* Add(CLI::App& root, const std::string& names, T& value, const std::string& help) {
  const std::string flag = names.substr(names.find("--"));
  CLI::Option* option = root.add_option(names, value, help)->envname(EnvironmentName(flag));
  if constexpr (std::is_integral_v<T>) option->capture_default_str();
  return option;
}

std::string HomeFolder(const char* variable, std::string_view fallback) {
  if (const char* folder = std::getenv(variable); folder != nullptr && *folder == '/')
    return folder;
  const char* home = std::getenv("HOME");
  return fmt::format("{}/{}", home == nullptr ? "." : home, fallback);
}

// Options that make no sense in a file.
bool InFile(const std::string& key) { return key != "config" && key != "help" && key != "version"; }

// The command that a file's key is of: the verb that its section names, or all of them.
CLI::App* CommandOf(CLI::App& root, const CLI::ConfigItem& item) {
  if (item.parents.empty()) return &root;
  const auto named = root.get_subcommands([&](const CLI::App* verb) {
    return item.parents.size() == 1 && verb->get_name() == item.parents.front();
  });
  return named.empty() ? nullptr : named.front();
}

Status ApplyItem(CLI::App& root, const std::string& path, const CLI::ConfigItem& item) {
  CLI::App* command = InFile(item.name) ? CommandOf(root, item) : nullptr;
  CLI::Option* option =
      command == nullptr ? nullptr : command->get_option_no_throw("--" + item.name);
  if (option == nullptr) {
    return Fail(Code::kInvalid, "{}: unknown key '{}'; see inferscale --help for the names", path,
                item.fullname());
  }
  if (option->count() > 0 || !(command == &root || command->parsed())) return {};
  const bool many = option->get_items_expected_max() > 1;
  if (item.inputs.size() != 1 && !many) {
    return Fail(Code::kInvalid, "{}: '{}' takes one value; put text with spaces in quotes", path,
                item.name);
  }
  try {
    for (const std::string& input : item.inputs) {
      option->add_result(
          option->get_items_expected_max() == 0 ? option->get_flag_value(item.name, input) : input);
    }
    option->run_callback();
  } catch (const CLI::ParseError& error) {
    return Fail(Code::kInvalid, "{}: '{}': {}", path, item.name, error.what());
  }
  return {};
}

Status ApplyFile(CLI::App& root, const std::string& path) {
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_file(path);
  } catch (const CLI::Error& error) {
    return Fail(Code::kInvalid, "configuration file {}: {}", path, error.what());
  }
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // begin and end of a section
    INFERSCALE_TRY(ApplyItem(root, path, item));
  }
  return {};
}

void NoteGiven(const CLI::App& command, std::map<std::string, std::string>* given) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    std::string& values = (*given)[option->get_name()];
    for (const std::string& value : option->results()) values += value + "\n";
  }
}

}  // namespace

AskRequest Options::Request() const {
  AskRequest request;
  request.compose = app.compose;
  request.auto_facts = auto_facts;
  return request;
}

Scope Options::QueryScope() const {
  Scope query = scope;
  if (query.user == "*") query.user.clear();
  return query;
}

std::string DefaultDataDir() { return HomeFolder("XDG_DATA_HOME", ".local/share") + "/inferscale"; }

std::string DefaultConfigFile() {
  return HomeFolder("XDG_CONFIG_HOME", ".config") + "/inferscale.toml";
}

void AddGlobalOptions(CLI::App& root, Options* options) {
  AppOptions& app = options->app;
  Scope& scope = options->scope;
  app.data_dir = DefaultDataDir();
  const CLI::Range count(uint32_t{0}, uint32_t{1} << 20);
  const CLI::Range megabytes(uint64_t{0}, uint64_t{1} << 30);

  const std::string places = "Places";
  Add(root, "--data-dir", app.data_dir, "Folder of facts and KV")->group(places)->type_name("DIR");
  const std::map<std::string, EngineKind> engines = {{"llama", EngineKind::kLlama},
                                                     {"vllm", EngineKind::kVllm}};
  Add(root, "--engine", app.engine,
      "Who computes: llama (in this process) or vllm (servers; --url alone says it too)")
      ->group(places)
      ->transform(CLI::CheckedTransformer(engines))
      ->type_name("ENGINE")
      ->default_str("llama");
  Add(root, "--url", app.urls,
      "URL of a vLLM server; several of one model may be given, again or with commas")
      ->group(places)
      ->take_all()
      ->allow_extra_args(false)
      ->delimiter(',')
      ->type_name("URL");
  Add(root, "--engine-key", app.engine_key, "Its API key (the environment is the safer place)")
      ->group(places)
      ->type_name("KEY");
  Add(root, "--model", app.model, "Language model, a GGUF file")->group(places)->type_name("FILE");
  Add(root, "--embed-model", app.embed_model, "Embedding model, a GGUF file")
      ->group(places)
      ->type_name("FILE");
  Add(root, "--embed-url", app.embed_url, "Or: base URL of an OpenAI-compatible embedding server")
      ->group(places)
      ->type_name("URL");
  Add(root, "--embed-name", app.embed_name, "Name of that server's model")
      ->group(places)
      ->type_name("NAME");
  Add(root, "--embed-key", app.embed_key, "Its API key (the environment is the safer place)")
      ->group(places)
      ->type_name("KEY");
  root.add_option("--config", options->config,
                  "TOML file with any of these options, named as here without the dashes; a verb's "
                  "own under [VERB] "
                  "(default: ~/.config/inferscale.toml if it exists)")
      ->envname("INFERSCALE_CONFIG")
      ->group(places)
      ->type_name("FILE");

  const std::string whose = "Whose facts";
  Add(root, "--tenant", scope.tenant, "Tenant; nothing is shared between tenants")
      ->group(whose)
      ->type_name("NAME");
  Add(root, "--user", scope.user, "User; '*' reads every user's")->group(whose)->type_name("NAME");
  Add(root, "--agent", scope.agent, "Agent")->group(whose)->type_name("NAME");
  Add(root, "--run", scope.run, "Run, e.g. one conversation")->group(whose)->type_name("NAME");

  const std::string prompt = "Prompt";
  Add(root, "--facts", app.compose.facts, "At most this many facts in a prompt")
      ->group(prompt)
      ->check(count)
      ->type_name("N");
  Add(root, "--fact-tokens", app.compose.fact_tokens, "At most this many tokens of facts; 0: any")
      ->group(prompt)
      ->check(count)
      ->type_name("N");
  Add(root, "--plain", app.compose.plain_last,
      "The last N facts before the question are prefilled instead of injected")
      ->group(prompt)
      ->check(count)
      ->type_name("N");
  Add(root, "--auto-facts", options->auto_facts,
      fmt::format("Mode auto injects no KV into a prompt of fewer facts than N (default: as verify "
                  "found, else {})",
                  kAutoFacts))
      ->group(prompt)
      ->check(count)
      ->type_name("N");
  Add(root, "--window", options->window,
      "What facts are encoded behind: anchor(N), window(N), session, neighbours(N) or isolated; "
      "anchor(N+M): behind each of two, and the mean is kept")
      ->capture_default_str()
      ->group(prompt)
      ->type_name("KIND");
  Add(root, "--episode", app.episode_facts, "Consecutive facts that are encoded together")
      ->group(prompt)
      ->check(CLI::Range(uint32_t{1}, uint32_t{1024}))
      ->type_name("N");

  const std::string resources = "Resources";
  Add(root, "--threads", app.threads, "Threads of the models; 0: one per core")
      ->group(resources)
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  Add(root, "--slots", app.slots, "Answers at a time")
      ->group(resources)
      ->check(CLI::Range(uint32_t{1}, uint32_t{256}))
      ->type_name("N");
  Add(root, "--queue-seconds", app.queue_seconds,
      "Refuse questions while the first that waits has waited so long (llama); 0: never")
      ->group(resources)
      ->check(count)
      ->type_name("N");
  Add(root, "--context", app.context_tokens, "Tokens per answer; 0: the model's, at most 8192")
      ->group(resources)
      ->check(count)
      ->type_name("N");
  Add(root, "--arena-mb", options->arena_mb, "Memory for KV, in MiB")
      ->group(resources)
      ->check(megabytes)
      ->type_name("N");
  Add(root, "--disk-mb", options->disk_mb, "KV on disk, in MiB; 0: no limit")
      ->group(resources)
      ->check(megabytes)
      ->type_name("N");

  const std::map<std::string, KvCodec> codecs = {
      {"none", KvCodec::kNone}, {"int8", KvCodec::kInt8}, {"fp8", KvCodec::kFp8}};
  Add(root, "--kv-codec", app.kv_codec,
      "How KV is stored: none (the model's own numbers), int8 or fp8 (half the bytes)")
      ->group(resources)
      ->transform(CLI::CheckedTransformer(codecs))
      ->type_name("CODEC")
      ->default_str("none");

  const std::string output = "Output";
  const std::map<std::string, OutputFormat> formats = {{"table", OutputFormat::kTable},
                                                       {"json", OutputFormat::kJson}};
  Add(root, "-o,--output", options->output, "table or json")
      ->group(output)
      ->transform(CLI::CheckedTransformer(formats))
      ->type_name("FORMAT")
      ->default_str("table");
  root.add_flag("-v,--verbose", options->verbose, "Log to stderr; -vv logs more")->group(output);
}

Status FinishOptions(CLI::App& root, Options* options) {
  for (const CLI::Option* option : root.parse_order()) {
    options->typed.insert(option->get_single_name());
  }
  if (!options->config.empty()) {
    INFERSCALE_TRY(ApplyFile(root, options->config));
  } else if (std::filesystem::exists(DefaultConfigFile())) {
    options->config = DefaultConfigFile();
    INFERSCALE_TRY(ApplyFile(root, options->config));
  }
  NoteGiven(root, &options->given);
  for (const CLI::App* verb : root.get_subcommands()) NoteGiven(*verb, &options->given);
  for (const auto& [name, value] :
       {std::pair("--tenant", &options->scope.tenant), std::pair("--user", &options->scope.user),
        std::pair("--agent", &options->scope.agent), std::pair("--run", &options->scope.run)}) {
    if (FindInvalidUtf8(*value) != std::string::npos) {
      return Fail(Code::kInvalid, "{} is not valid UTF-8", name);
    }
  }
  if (options->scope.tenant.empty()) return Fail(Code::kInvalid, "--tenant must not be empty");
  if (options->scope.user.empty()) {
    return Fail(Code::kInvalid, "--user must not be empty; '*' reads every user's facts");
  }
  if (options->app.data_dir.empty()) return Fail(Code::kInvalid, "--data-dir must not be empty");
  if (!options->app.urls.empty() && root.get_option("--engine")->count() == 0) {
    options->app.engine = EngineKind::kVllm;
  }
  INFERSCALE_ASSIGN(options->app.window, ParseWindow(options->window));
  options->app.arena_bytes = options->arena_mb << 20;
  options->app.disk_bytes = options->disk_mb << 20;
  return {};
}

}  // namespace inferscale
