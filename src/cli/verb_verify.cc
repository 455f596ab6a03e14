// The quality gate: may KV stand for text, with this model and these settings?
#include <fmt/format.h>

#include "app/gate.h"
#include "app/models.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/temp_dir.h"
#include "cli/verbs.h"
#include "cli/verdict_view.h"

namespace inferscale {
namespace {

std::string DescribeSettings(const AppOptions& options) {
  return fmt::format("window {}, episodes of {}, the last {} facts computed, codec {}",
                     options.window.ToString(), options.episode_facts, options.compose.plain_last,
                     KvCodecName(options.kv_codec));
}

Result<std::vector<GateMeasurement>> Measure(App& app) {
  Progress progress("Verifying");
  const InterruptStop stop;
  return RunGate(
      app,
      [&](size_t done, size_t total) {
        progress.Update(done, total, "");
        return !Interrupted();
      },
      stop.token());
}

int Report(std::span<const GateMeasurement> measured, const ModelInfo& model,
           const Options& options) {
  const GateVerdict& verdict = measured.front().verdict;
  if (options.json()) {
    boost::json::object out = VerdictToJson(verdict);
    boost::json::array& fewer = out["fewer"].emplace_array();
    for (const auto& [facts, of_fewer] : measured.subspan(1)) {
      fewer.push_back(VerdictToJson(of_fewer));
      fewer.back().as_object()["facts"] = facts;
    }
    out["facts"] = measured.front().facts;
    out["model"] = model.name;
    out["fingerprint"] = model.fingerprint.Hex();
    out["settings"] = DescribeSettings(options.app);
    out["self_test"] = model.self_test.summary;
    PrintJson(out);
    return verdict.passed ? kExitOk : kExitFailed;
  }
  Print(Listing(
      {{"Model", fmt::format("{}, {}", model.name, model.description)},
       {"Settings", DescribeSettings(options.app)},
       {"Self-test", model.self_test.summary},
       {"Measured", fmt::format("{} positions in the answers to {} questions, {:.0f} % "
                                "of the prompts injected",
                                verdict.positions, verdict.questions, 100 * verdict.injected)}}));
  Print("\nInjected KV against full prefill; the limits are what shuffled facts do to it.\n\n" +
        GateTable(measured) + "\n");
  Print(verdict.passed
            ? fmt::format("PASSED: mode auto injects KV into prompts of {} facts and more.\n",
                          verdict.least_facts)
            : "FAILED: mode auto computes facts from text.\n");
  return verdict.passed ? kExitOk : kExitFailed;
}

Result<int> Run(const Options& options) {
  if (!NamesEngine(options.app) ||
      (options.app.embed_model.empty() && options.app.embed_url.empty())) {
    return Fail(Code::kUnsupported, "give both models: --model or --url, and --embed-model");
  }
  INFERSCALE_ASSIGN(Models models, LoadModels(options.app, Need::kAnswer));
  const SharedModels shared(std::move(models));
  INFERSCALE_ASSIGN(const auto app, OpenApp(options.app, shared.Share()));
  const ModelInfo model = app->engine().info();
  if (!model.self_test.passed || !model.injection) {
    return Fail(Code::kUnsupported, "failed: the model takes no KV ({})", model.self_test.summary);
  }
  // vLLM's connector looks for KV in the folder that it was started with, and in no other; else
  // the folder of facts need not wait for what is pending there.
  std::optional<TempDir> temporary;
  std::unique_ptr<App> apart;
  if (!model.stores_kv) {
    INFERSCALE_ASSIGN(temporary, TempDir::Make());
    AppOptions elsewhere = options.app;
    elsewhere.data_dir = temporary->path();
    INFERSCALE_ASSIGN(apart, OpenApp(std::move(elsewhere), shared.Share()));
  }
  INFERSCALE_ASSIGN(const std::vector<GateMeasurement> measured, Measure(apart ? *apart : *app));
  INFERSCALE_TRY(app->facts().PutVerdict(app->VerdictId(), measured.front().verdict));
  return Report(measured, model, options);
}

}  // namespace

Verb VerifyVerb(CLI::App& root) {
  CLI::App* command = AddCommand(
      root, "verify",
      "Measure once how near injected KV comes to text with this model and these settings, pass or "
      "fail it, and find from how many facts on; mode auto heeds that",
      {"inferscale verify", "inferscale verify --model new.gguf --window isolated -o json",
       "inferscale verify --url http://127.0.0.1:8000"});
  return {command, [](const Options& options) { return Run(options); }};
}

}  // namespace inferscale
