// How fast facts are remembered, without a language model: durable single adds, bulk adds, and what
// memory that takes.
//
//   add_facts [--single N] [--bulk N] [--embedder own|float|libllama|none] [--dir DIR]
//
// `none` gives every text a vector without a model, to see what all the rest costs.
#include <fmt/format.h>
#include <llama.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "app/app.h"
#include "app/models.h"
#include "base/clock.h"
#include "base/llama_runtime.h"
#include "embed/llama_embedder.h"
#include "made_facts.h"

namespace inferscale {
namespace {

constexpr size_t kCallFacts = 640;  // in a call of Add

// Resident memory in MiB, now; without the pages of mapped files, which are the system's.
double ResidentMib() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  uint64_t shared = 0;
  file >> total >> resident >> shared;
  return static_cast<double>(resident - shared) * static_cast<double>(sysconf(_SC_PAGESIZE)) /
         1048576.0;
}

class NoEmbedder final : public Embedder {
 public:
  uint32_t dims() const override { return 384; }
  Hash128 identity() const override { return {1, 2}; }
  std::string name() const override { return "none"; }
  Result<std::vector<std::vector<float>>> Embed(std::span<const std::string> texts) override {
    std::vector<std::vector<float>> vectors;
    for (const std::string& text : texts) {
      std::vector<float>& vector = vectors.emplace_back(dims(), 0.01F);
      vector[text.size() % dims()] = 0.98F;
    }
    return vectors;
  }
};

Result<std::unique_ptr<Embedder>> MakeEmbedder(const std::string& kind) {
  if (kind == "none") return std::make_unique<NoEmbedder>();
  const char* model = std::getenv("INFERSCALE_EMBED_MODEL");
  const std::map<std::string, BertArithmetic> kinds = {{"own", BertArithmetic::kFastest},
                                                       {"float", BertArithmetic::kFloat},
                                                       {"libllama", BertArithmetic::kLibllama}};
  return OpenLlamaEmbedder({.model_path = model == nullptr ? "" : model, .bert = kinds.at(kind)});
}

// Tokens of a fact as the embedder reads it, the two that stand around it included.
double MeanTokens() {
  InitLlamaRuntime();
  const char* path = std::getenv("INFERSCALE_EMBED_MODEL");
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = path == nullptr ? nullptr : llama_model_load_from_file(path, params);
  if (model == nullptr) return 0;
  MadeFacts facts;
  int total = 0;
  constexpr int kSample = 1000;
  for (int i = 0; i < kSample; ++i) {
    const std::string line = RenderFact(facts.Next());
    std::vector<llama_token> tokens(line.size() + 2);
    total +=
        llama_tokenize(llama_model_get_vocab(model), line.data(), static_cast<int32_t>(line.size()),
                       tokens.data(), static_cast<int32_t>(tokens.size()), true, false);
  }
  llama_model_free(model);
  return static_cast<double>(total) / kSample;
}

Status AddSingly(App& app, MadeFacts& facts, size_t count) {
  std::vector<double> ms;
  for (size_t i = 0; i < count; ++i) {
    const Fact fact = facts.Next();
    const Stopwatch watch;
    INFERSCALE_TRY(app.Add(std::span(&fact, 1)));
    ms.push_back(watch.Ms());
  }
  std::sort(ms.begin(), ms.end());
  if (!ms.empty()) {
    fmt::print("single adds, durable: p50 {:.2f} ms, p99 {:.2f} ms, max {:.2f} ms over {}\n",
               ms[ms.size() / 2], ms[ms.size() * 99 / 100], ms.back(), ms.size());
  }
  return {};
}

Status AddInBulk(App& app, MadeFacts& facts, size_t count) {
  const double before = ResidentMib();
  double most = before;
  const Stopwatch watch;
  for (size_t done = 0; done < count;) {
    std::vector<Fact> batch;
    for (; batch.size() < kCallFacts && done < count; ++done) batch.push_back(facts.Next());
    INFERSCALE_TRY(app.Add(batch));
    most = std::max(most, ResidentMib());
  }
  if (count > 0) {
    fmt::print("bulk adds: {:.0f} facts/s over {}; resident {:.0f} MiB before, {:.0f} at most\n",
               static_cast<double>(count) / watch.Ms() * 1000, count, before, most);
  }
  return {};
}

Status Measure(const std::map<std::string, std::string>& flags) {
  AppOptions options;
  options.data_dir = flags.at("--dir");
  INFERSCALE_ASSIGN(auto embedder, MakeEmbedder(flags.at("--embedder")));
  INFERSCALE_ASSIGN(const auto app,
                    OpenApp(options, {.embedder = std::move(embedder), .engine = nullptr}));
  fmt::print("facts of {:.1f} tokens; budgets: KV {} MiB, search {} MiB\n", MeanTokens(),
             options.arena_bytes >> 20, options.index_bytes >> 20);
  MadeFacts facts;
  INFERSCALE_TRY(AddSingly(*app, facts, std::stoul(flags.at("--single"))));
  return AddInBulk(*app, facts, std::stoul(flags.at("--bulk")));
}

int Main(int argc, char** argv) {
  const auto own_dir =
      std::filesystem::temp_directory_path() / fmt::format("inferscale-add-{}", getpid());
  std::map<std::string, std::string> flags = {
      {"--single", "300"}, {"--bulk", "2000"}, {"--embedder", "own"}, {"--dir", own_dir.string()}};
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  const Status status = Measure(flags);
  std::filesystem::remove_all(own_dir);
  if (status) return 0;
  fmt::print(stderr, "add: {}\n", status.error().message);
  return 1;
}

}  // namespace
}  // namespace inferscale

int main(int argc, char** argv) { return inferscale::Main(argc, argv); }
