#include <fmt/format.h>

#include <boost/json.hpp>
#include <iostream>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/score.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

namespace json = boost::json;

json::object Describe(const ModelInfo& model, const std::string& system) {
  return {{"version", INFERSCALE_VERSION},          {"name", model.name},
          {"description", model.description},       {"engine", model.engine_version},
          {"fingerprint", model.fingerprint.Hex()}, {"context_tokens", model.context_tokens},
          {"injection", model.injection},           {"system", system},
          {"self_test", model.self_test.summary}};
}

json::object Failed(const Error& error) {
  return {{"error", {{"code", std::string(CodeName(error.code))}, {"message", error.message}}}};
}

json::object Embedded(Scorer& scorer, const std::vector<std::string>& texts) {
  const auto vectors = scorer.Embed(texts);
  if (!vectors) return Failed(vectors.error());
  json::array out;
  for (const std::vector<float>& vector : *vectors) {
    out.emplace_back(json::array(vector.begin(), vector.end()));
  }
  return {{"vectors", std::move(out)}};
}

json::object Reply(Scorer& scorer, const std::string& line, const AppOptions& defaults) {
  const auto texts = ParseEmbedRequest(line);
  if (!texts) return Failed(texts.error());
  if (*texts) return Embedded(scorer, **texts);
  const auto request = ParseScoreRequest(line, defaults);
  if (!request) return Failed(request.error());
  auto arms = scorer.Score(*request);
  if (!arms) return Failed(arms.error());
  return {{"arms", *std::move(arms)}};
}

Result<int> Run(const Options& options) {
  if (!NamesEngine(options.app) || options.app.embed_model.empty()) {
    return Fail(Code::kUnsupported, "give both models: --model and --embed-model");
  }
  INFERSCALE_ASSIGN(const auto scorer, Scorer::Open(options.app));
  PrintJson({{"model", Describe(scorer->model(), options.app.system)}});
  if (!FlushOutput()) return kExitFailed;
  for (std::string line; !Interrupted() && std::getline(std::cin, line);) {
    if (line.empty()) continue;
    PrintJson(Reply(*scorer, line, options.app));
    if (!FlushOutput()) return kExitFailed;
  }
  if (Interrupted()) return Fail(Code::kCancelled, "interrupted");
  return kExitOk;
}

}  // namespace

Verb BenchScoreVerb(CLI::App& root) {
  CLI::App* command = AddCommand(
      *root.get_subcommand("bench"), "score",
      "Answers and likelihoods for questions on standard input, one JSON object a line; what "
      "python -m inferscale.bench measures with",
      {"inferscale bench score <questions.jsonl >measured.jsonl"});
  return {command, [](const Options& options) { return Run(options); }};
}

}  // namespace inferscale
