// From an empty folder to a plot: import, encode, ask with and without memory, measure.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "base/clock.h"
#include "cli/answer_view.h"
#include "cli/ingest.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/sample.h"
#include "cli/temp_dir.h"
#include "cli/ttft.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

struct Args {
  std::string sample;
  std::string plot = "ttft.svg";
  std::vector<uint32_t> sweep = {0, 10, 25, 50, 75, 100};
  uint32_t questions = 5;
  uint32_t repeat = 0;  // as many as fit
  uint32_t max_tokens = 24;
};

constexpr std::array kArms = {MemoryMode::kNone, MemoryMode::kText, MemoryMode::kKv};
constexpr uint32_t kFacts = 30;  // in a prompt, where the user names no other number
constexpr double kSweepMs = 40000;

struct Asked {
  SampleQuestion question;
  std::array<Answer, kArms.size()> answers;  // in the order of kArms
};

std::string_view ArmName(MemoryMode mode) {
  switch (mode) {
    case MemoryMode::kNone:
      return "no memory";
    case MemoryMode::kText:
      return "text";
    case MemoryMode::kAuto:
    case MemoryMode::kKv:
      return "KV";
  }
  return "";
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool Right(const Answer& answer, const SampleQuestion& question) {
  return !question.answer.empty() &&
         Lower(answer.text).find(Lower(question.answer)) != std::string::npos;
}

// What is said while the demo runs; in JSON only the numbers are printed, at the end.
class Narrator {
 public:
  explicit Narrator(bool silent) : silent_(silent) {}
  void Tell(std::string_view text) const {
    if (silent_) return;
    Print(text);
    FlushOutput();
  }

 private:
  bool silent_;
};

AskRequest MakeRequest(const Args& args, const Options& options, const Scope& scope,
                       const std::string& question, MemoryMode mode) {
  AskRequest request = options.Request();
  request.scope = scope;
  request.question = question;
  request.mode = mode;
  if (!options.typed.contains("facts")) request.compose.facts = kFacts;
  request.sampling.max_tokens = args.max_tokens;
  return request;
}

Result<std::vector<Asked>> AskAll(App& app, const Args& args, const Options& options,
                                  const Sample& sample, const Scope& scope,
                                  const Narrator& narrator) {
  std::vector<SampleQuestion> questions = sample.questions;
  std::stable_partition(questions.begin(), questions.end(),
                        [](const SampleQuestion& question) { return question.demo; });
  questions.resize(std::min<size_t>(questions.size(), args.questions));
  std::vector<Asked> all;
  for (const SampleQuestion& question : questions) {
    if (all.empty()) {  // warm up: threads, caches, the first allocations
      INFERSCALE_TRY(
          app.Ask(MakeRequest(args, options, scope, question.question, MemoryMode::kKv), nullptr));
    }
    Asked asked{question, {}};
    for (size_t arm = 0; arm < kArms.size(); ++arm) {
      if (Interrupted()) return Fail(Code::kCancelled, "interrupted");
      INFERSCALE_ASSIGN(
          asked.answers[arm],
          app.Ask(MakeRequest(args, options, scope, question.question, kArms[arm]), nullptr));
    }
    narrator.Tell(
        fmt::format("\n{}. {}  (right: {})\n", all.size() + 1, question.question, question.answer));
    Table table({{"MEMORY"},
                 {"FIRST TOKEN", Align::kRight},
                 {"PREFILLED", Align::kRight},
                 {"INJECTED", Align::kRight},
                 {""},
                 {"ANSWER"}});
    for (size_t arm = 0; arm < kArms.size(); ++arm) {
      const Answer& answer = asked.answers[arm];
      table.Add({std::string(ArmName(kArms[arm])), FormatMs(answer.times.first_token_ms),
                 FormatCount(answer.stats.prefilled_tokens),
                 FormatCount(answer.stats.injected_tokens), Right(answer, question) ? "+" : "-",
                 answer.text});
    }
    narrator.Tell(table.ToString(TerminalWidth()));
    all.push_back(std::move(asked));
  }
  return all;
}

struct Summary {
  std::array<double, kArms.size()> first_token_ms{};
  std::array<size_t, kArms.size()> right{};
  size_t same = 0;  // KV and text gave the same answer
  double speed_up = 0;
};

Summary Summarise(const std::vector<Asked>& all) {
  Summary out;
  for (size_t arm = 0; arm < kArms.size(); ++arm) {
    std::vector<double> times;
    for (const Asked& asked : all) {
      times.push_back(asked.answers[arm].times.first_token_ms);
      out.right[arm] += Right(asked.answers[arm], asked.question) ? 1 : 0;
    }
    out.first_token_ms[arm] = Median(times);
  }
  for (const Asked& asked : all) {
    out.same += asked.answers[1].text == asked.answers[2].text ? 1 : 0;
  }
  if (out.first_token_ms[2] > 0) out.speed_up = out.first_token_ms[1] / out.first_token_ms[2];
  return out;
}

std::string DescribeSummary(const Summary& summary, size_t questions) {
  Table table({{"MEMORY"}, {"FIRST TOKEN, MEDIAN", Align::kRight}, {"RIGHT", Align::kRight}});
  for (size_t arm = 0; arm < kArms.size(); ++arm) {
    table.Add({std::string(ArmName(kArms[arm])), FormatMs(summary.first_token_ms[arm]),
               fmt::format("{} of {}", summary.right[arm], questions)});
  }
  return fmt::format(
      "\n{}\nKV answers start {:.1f} times as fast as text; {} of {} are word for "
      "word the same.\n",
      table.ToString(0), summary.speed_up, summary.same, questions);
}

boost::json::object SummaryToJson(const Summary& summary, size_t questions) {
  return {{"questions", questions},
          {"none_ms", Rounded(summary.first_token_ms[0])},
          {"text_ms", Rounded(summary.first_token_ms[1])},
          {"kv_ms", Rounded(summary.first_token_ms[2])},
          {"speed_up", Rounded(summary.speed_up)},
          {"none_right", summary.right[0]},
          {"text_right", summary.right[1]},
          {"kv_right", summary.right[2]},
          {"same_answers", summary.same}};
}

boost::json::array AskedToJson(const std::vector<Asked>& all) {
  boost::json::array out;
  for (const Asked& asked : all) {
    boost::json::object item = {{"question", asked.question.question},
                                {"right_answer", asked.question.answer}};
    for (size_t arm = 0; arm < kArms.size(); ++arm) {
      const Answer& answer = asked.answers[arm];
      item[MemoryModeName(kArms[arm])] = {{"answer", answer.text},
                                          {"right", Right(answer, asked.question)},
                                          {"tokens", TokensToJson(answer.stats)},
                                          {"times", TimesToJson(answer.times)}};
    }
    out.push_back(std::move(item));
  }
  return out;
}

Status WriteFile(const std::string& path, const std::string& content) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool written =
      file != nullptr && std::fwrite(content.data(), 1, content.size(), file) == content.size();
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (written && closed) return {};
  return Fail(Code::kTransient, "{}: {}", path, std::strerror(errno));
}

// How often the sweep can be measured in about kSweepMs, judged by what the text prompts took.
uint32_t ChooseRepeat(const Args& args, const std::vector<Asked>& all) {
  double ms = 0;
  double facts = 0;
  for (const Asked& asked : all) {
    ms += asked.answers[1].times.first_token_ms;
    facts += static_cast<double>(asked.answers[1].facts.size());
  }
  const double sweep_facts = std::accumulate(args.sweep.begin(), args.sweep.end(), 0.0);
  const double round_ms = facts > 0 ? ms / facts * sweep_facts : 0;
  return round_ms > 0 ? static_cast<uint32_t>(std::clamp(kSweepMs / round_ms, 1.0, 5.0)) : 1;
}

std::string Measured(uint32_t repeat) {
  return repeat == 1 ? "measured once" : fmt::format("medians of {}", repeat);
}

Result<std::vector<TtftRow>> Sweep(App& app, const Args& args, uint32_t repeat,
                                   const Sample& sample, const Scope& scope,
                                   const Narrator& narrator) {
  TtftPlan plan;
  plan.scope = scope;
  plan.repeat = repeat;
  for (const SampleQuestion& question : sample.questions) {
    plan.questions.push_back(question.question);
  }
  for (const uint32_t facts : args.sweep) plan.cases.push_back({facts, 0});
  narrator.Tell(
      fmt::format("\nTime to the first token by the number of facts, {}:\n\n", Measured(repeat)));
  INFERSCALE_ASSIGN(auto rows, MeasureTtft(app, plan));
  narrator.Tell(TtftTable(rows).ToString(TerminalWidth()));
  const std::string subtitle = fmt::format("{}; the same prompts as text and as KV; {}",
                                           app.engine().info().name, Measured(repeat));
  INFERSCALE_TRY(WriteFile(args.plot, TtftSvg(rows, subtitle)));
  narrator.Tell(fmt::format("\nPlot: {}\n", args.plot));
  return rows;
}

// The sample conversation, with made-up facts if it has fewer than the sweep needs.
Result<Sample> LoadSample(const Args& args, const Scope& scope) {
  const std::string folder = args.sample.empty() ? FindSample() : args.sample;
  if (folder.empty()) {
    return Fail(Code::kUnsupported,
                "no sample conversation here: give its folder with --sample (examples/sample in "
                "the source tree)");
  }
  INFERSCALE_ASSIGN(Sample sample, ReadSample(folder, scope));
  const size_t most = *std::max_element(args.sweep.begin(), args.sweep.end());
  const size_t pool = most + most / 4;
  if (sample.facts.size() < pool) {
    const auto more = MakeFacts(pool - sample.facts.size(), scope);
    sample.facts.insert(sample.facts.end(), more.begin(), more.end());
  }
  return sample;
}

Result<int> Run(const Args& args, const Options& options) {
  const Stopwatch watch;
  const Narrator narrator(options.json());
  const Scope scope{.tenant = options.scope.tenant, .user = "sample", .agent = "", .run = ""};
  INFERSCALE_ASSIGN(const Sample sample, LoadSample(args, scope));
  std::optional<TempDir> temporary;
  AppOptions app_options = options.app;
  // Never into a folder that the environment or a file names: that is where the user's facts are.
  if (!options.typed.contains("data-dir")) {
    INFERSCALE_ASSIGN(temporary, TempDir::Make());
    app_options.data_dir = temporary->path();
  }
  INFERSCALE_ASSIGN(const auto app, OpenApplication(app_options, Need::kAnswer));
  const ModelInfo& model = app->engine().info();
  narrator.Tell(fmt::format("Model     {}, {}\nSelf-test {}\n", model.name, model.description,
                            model.self_test.summary));

  INFERSCALE_ASSIGN(const Ingested added, AddFacts(*app, sample.facts));
  narrator.Tell(fmt::format("Added     {} facts in {}, searchable at once; {} were there\n",
                            FormatCount(added.added), FormatMs(added.ms),
                            FormatCount(added.duplicates)));
  bool interrupted = false;
  INFERSCALE_ASSIGN(const EncodeProgress encoded, EncodeAll(*app, &interrupted));
  if (interrupted || Interrupted()) return Fail(Code::kCancelled, "interrupted");
  narrator.Tell(fmt::format("Encoded   {}\n", DescribeEncoding(encoded)));

  INFERSCALE_ASSIGN(const auto asked, AskAll(*app, args, options, sample, scope, narrator));
  const Summary summary = Summarise(asked);
  narrator.Tell(DescribeSummary(summary, asked.size()));
  const uint32_t repeat = args.repeat > 0 ? args.repeat : ChooseRepeat(args, asked);
  INFERSCALE_ASSIGN(const auto rows, Sweep(*app, args, repeat, sample, scope, narrator));
  narrator.Tell(fmt::format("Done in {}.\n", FormatMs(watch.Ms())));
  if (options.json()) {
    PrintJson({{"model", model.name},
               {"facts", sample.facts.size()},
               {"add_ms", Rounded(added.ms)},
               {"encode_ms", Rounded(encoded.ms)},
               {"stored_tokens", encoded.stored_tokens},
               {"questions", AskedToJson(asked)},
               {"summary", SummaryToJson(summary, asked.size())},
               {"rows", TtftToJson(rows)},
               {"plot", args.plot},
               {"total_ms", Rounded(watch.Ms())}});
  }
  return kExitOk;
}

}  // namespace

Verb DemoVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* command =
      AddCommand(root, "demo", "See it work on a sample conversation, in about a minute",
                 {"inferscale demo --plot ttft.svg --repeat 5",
                  "inferscale demo --data-dir demo-data -o json   # else a temporary folder"});
  command->add_option("--sample", args->sample, "Folder of another sample conversation")
      ->type_name("DIR");
  command->add_option("--plot", args->plot, "Where the plot goes")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--sweep", args->sweep, "Facts in the prompts of the plot")
      ->delimiter(',')
      ->check(CLI::Range(uint32_t{0}, uint32_t{10000}))
      ->type_name("N,...")
      ->default_str("0,10,25,50,75,100");
  command->add_option("--questions", args->questions, "How many are asked")
      ->check(CLI::Range(uint32_t{1}, uint32_t{1000}))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--repeat", args->repeat, "Measurements a row; 0: as many as fit into 40 s")
      ->check(CLI::Range(uint32_t{0}, uint32_t{1000}))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--max-tokens", args->max_tokens, "Longest answer")
      ->check(CLI::Range(uint32_t{1}, uint32_t{4096}))
      ->type_name("N")
      ->capture_default_str();
  return {command, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
