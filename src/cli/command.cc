#include "cli/command.h"

#include <CLI/CLI.hpp>

#include "base/utf8.h"
#include "memory/import.h"

namespace inferscale {
namespace {

constexpr int kAnyNumber = 1 << 20;

// CLI11's help with a shorter usage line, and without its own words for types and repetitions.
class HouseFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string out = "Usage: " + (name.empty() ? app->get_name() : name);
    for (const CLI::App* parent = app->get_parent(); name.empty() && parent != nullptr;
         parent = parent->get_parent()) {
      out.insert(7, parent->get_name() + " ");
    }
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional() && option->nonpositional()) continue;
      if (option->get_positional()) out += " " + Placeholder(*option);
    }
    if (!app->get_subcommands([](const CLI::App*) { return true; }).empty()) out += " VERB";
    return out + " [options]\n";
  }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    return positional ? Placeholder(*option) : CLI::Formatter::make_option_name(option, positional);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string out;
    if (option->get_positional()) return out;
    // CLI11 appends what its validators would say.
    const std::string type = option->get_type_name();
    if (!type.empty()) out += " " + type.substr(0, type.find(':'));
    if (!option->get_default_str().empty()) out += " (" + option->get_default_str() + ")";
    return out;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string variable = option->get_envname();
    return option->get_description() + (variable.empty() ? "" : " [$" + variable + "]");
  }

 private:
  static std::string Placeholder(const CLI::Option& option) {
    std::string name = option.get_name(true);
    if (option.get_items_expected_max() >= kAnyNumber) name += "...";
    return option.get_required() ? name : "[" + name + "]";
  }
};

}  // namespace

int ExitCode(Code code) {
  switch (code) {
    case Code::kInvalid:
      return kExitUsage;
    case Code::kNotFound:
      return kExitNotFound;
    case Code::kCancelled:
      return kExitInterrupted;
    case Code::kConflict:
    case Code::kCorrupt:
    case Code::kTransient:
    case Code::kExhausted:
    case Code::kUnsupported:
    case Code::kInternal:
    case Code::kOverQuota:
      return kExitFailed;
  }
  return kExitFailed;
}

void UseHouseHelp(CLI::App& root) {
  auto formatter = std::make_shared<HouseFormatter>();
  formatter->column_width(34);
  formatter->label("Positionals", "Arguments");
  root.formatter(formatter);
}

CLI::App* AddCommand(CLI::App& parent, const std::string& name, const std::string& what,
                     const std::vector<std::string>& examples) {
  CLI::App* command = parent.add_subcommand(name, what);
  command->group("Verbs");
  command->fallthrough();  // global options may follow the verb
  std::string footer = "Examples:\n";
  for (const std::string& example : examples) footer += "  " + example + "\n";
  footer += "\nThe options of every verb: inferscale --help";
  command->footer(footer);
  return command;
}

void AddTexts(CLI::App* command, const std::string& name, std::vector<std::string>* texts,
              const std::string& help) {
  // A positional that takes extra arguments splits "[a, b]" into two; one that merely expects many
  // leaves texts alone.
  command->add_option(name, *texts, help)
      ->expected(kAnyNumber)
      ->allow_extra_args(false)
      ->take_all();
}

bool NamesEngine(const AppOptions& options) {
  return options.engine == EngineKind::kVllm ? !options.urls.empty() : !options.model.empty();
}

Result<std::unique_ptr<App>> OpenApplication(const AppOptions& options, Need need) {
  const bool embeds = !options.embed_model.empty() || !options.embed_url.empty();
  if (need == Need::kAnswer && !NamesEngine(options)) {
    return options.engine == EngineKind::kVllm
               ? Fail(Code::kUnsupported,
                      "no vLLM server: give its URL with --url or INFERSCALE_URL")
               : Fail(Code::kUnsupported,
                      "no language model: give its GGUF file with --model or INFERSCALE_MODEL, or "
                      "vLLM servers with --url");
  }
  if (need != Need::kFacts && !embeds) {
    return Fail(Code::kUnsupported,
                "no embedding model: give its GGUF file with --embed-model or "
                "INFERSCALE_EMBED_MODEL, or a server with --embed-url");
  }
  auto app = App::Open(options, need);
  if (!app) {
    Error error = std::move(app).error();
    if (ExitCode(error.code) != kExitFailed) error.code = Code::kUnsupported;
    return tl::unexpected<Error>(std::move(error));
  }
  return app;
}

Result<std::optional<int64_t>> ParseTimeFlag(std::string_view flag, const std::string& value) {
  if (value.empty()) return std::nullopt;
  auto time = ParseTime(value);
  if (!time) return Wrap(std::move(time).error(), flag);
  return *time;
}

Status CheckText(std::string_view what, std::string_view text) {
  if (const size_t at = FindInvalidUtf8(text); at != std::string::npos) {
    return Fail(Code::kInvalid, "{} is not valid UTF-8 (byte {})", what, at + 1);
  }
  return {};
}

Result<Filter> ParseFilterFlag(const std::string& json) {
  auto filter = Filter::Parse(json);
  if (!filter) return Wrap(std::move(filter).error(), "--filter");
  return filter;
}

void AddInferFlag(CLI::App* command, bool* infer) {
  command->add_flag(
      "--infer", *infer,
      "Keep what the model draws from the texts instead of the texts themselves; needs "
      "--model or --url");
}

void AddHealFlag(CLI::App* command, bool* heal) {
  command->add_flag("--heal", *heal,
                    "While nothing is asked, compute what dialogues hold as injected KV, so that "
                    "their next turns stand on that; takes the memory of one more slot");
}

}  // namespace inferscale
