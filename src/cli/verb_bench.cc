#include <fmt/format.h>

#include <algorithm>

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
  std::vector<uint32_t> facts = {0, 10, 25, 50, 75, 100};
  std::vector<uint32_t> plain;
  uint32_t repeat = 5;
  std::string sample;
};

constexpr uint32_t kMostFacts = 10000;

// More facts than any prompt takes, so that there is something to choose from.
size_t PoolSize(const std::vector<uint32_t>& facts) {
  const size_t most = *std::max_element(facts.begin(), facts.end());
  return most + most / 4 + 6;
}

std::vector<TtftCase> MakeCases(const Args& args, uint32_t default_plain) {
  std::vector<uint32_t> plains = args.plain;
  if (plains.empty()) plains = {default_plain};
  std::vector<TtftCase> cases;
  for (const uint32_t facts : args.facts) {
    for (const uint32_t plain : plains) {
      cases.push_back({facts, plain});
      if (facts == 0) break;  // without facts none of them is plain
    }
  }
  return cases;
}

// Deletes what was remembered of a scope, whatever comes of the benchmark.
class Forgotten {
 public:
  Forgotten(App& app, Scope scope) : app_(app), scope_(std::move(scope)) {}
  ~Forgotten() {
    if (const auto deleted = app_.DeleteScope(scope_); !deleted) Say(deleted.error().message);
  }
  Forgotten(const Forgotten&) = delete;
  Forgotten& operator=(const Forgotten&) = delete;

 private:
  App& app_;
  const Scope scope_;
};

Result<int> Run(const Args& args, const Options& options) {
  INFERSCALE_ASSIGN(const TempDir folder, TempDir::Make());
  AppOptions app_options = options.app;
  // vLLM's connector looks for KV in the folder that it was started with, and in no other.
  if (app_options.engine != EngineKind::kVllm) app_options.data_dir = folder.path();
  INFERSCALE_ASSIGN(const auto app, OpenApplication(app_options, Need::kAnswer));

  TtftPlan plan;
  plan.scope = {
      .tenant = options.scope.tenant, .user = "bench " + folder.path(), .agent = "", .run = ""};
  const Forgotten forgotten(*app, plan.scope);
  plan.cases = MakeCases(args, options.app.compose.plain_last);
  plan.repeat = args.repeat;
  Sample sample;
  if (!args.sample.empty()) {
    INFERSCALE_ASSIGN(sample, ReadSample(args.sample, plan.scope));
  }
  std::vector<Fact> facts = std::move(sample.facts);
  for (const SampleQuestion& question : sample.questions) {
    plan.questions.push_back(question.question);
  }
  if (plan.questions.empty()) plan.questions = MakeQuestions(32);
  const size_t pool = PoolSize(args.facts);
  if (facts.size() > pool) facts.resize(pool);
  std::vector<Fact> more = MakeFacts(pool - facts.size(), plan.scope);
  facts.insert(facts.end(), more.begin(), more.end());

  INFERSCALE_TRY(AddFacts(*app, facts));
  bool interrupted = false;
  INFERSCALE_TRY(EncodeAll(*app, &interrupted));
  if (interrupted || Interrupted()) return Fail(Code::kCancelled, "interrupted");
  INFERSCALE_ASSIGN(const auto rows, MeasureTtft(*app, plan));
  if (options.json()) {
    PrintJson({{"rows", TtftToJson(rows)}});
  } else {
    PrintTable(TtftTable(rows));
    Print(fmt::format(
        "\n{}, {} threads; medians of {} questions; text and KV have the same prompt.\n",
        app->engine().info().name,
        options.app.threads == 0 ? "all" : fmt::format("{}", options.app.threads), args.repeat));
  }
  return kExitOk;
}

}  // namespace

Verb BenchTtftVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* bench = AddCommand(root, "bench", "Measure on this machine",
                               {"inferscale bench ttft", "inferscale bench ttft --help"});
  bench->require_subcommand(1);
  CLI::App* command =
      AddCommand(*bench, "ttft", "Time to the first token: memory as text against memory as KV",
                 {"inferscale bench ttft --facts 0,50,100 --plain 0 -o json",
                  "inferscale bench ttft --facts 50 --plain 0,3,5,10 --repeat 9"});
  command->add_option("--facts", args->facts, "Facts in the prompt, a row for each; 0: no memory")
      ->delimiter(',')
      ->check(CLI::Range(uint32_t{0}, kMostFacts))
      ->type_name("N,...")
      ->default_str("0,10,25,50,75,100");
  command
      ->add_option("--plain", args->plain, "Of them, prefilled in the KV arm too; a row for each")
      ->delimiter(',')
      ->check(CLI::Range(uint32_t{0}, kMostFacts))
      ->type_name("N,...");
  command->add_option("--repeat", args->repeat, "Questions a row")
      ->check(CLI::Range(uint32_t{1}, uint32_t{1000}))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--sample", args->sample,
                   "Folder with conversation.jsonl and questions.jsonl instead of made-up facts")
      ->type_name("DIR");
  return {command, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
