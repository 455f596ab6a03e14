// A question, measured: what `inferscale bench score` does for every line of its input. Several
// arms (ways to give the model its memory, from several data directories) are compared with full
// prefill of the same composition.
#ifndef INFERSCALE_CLI_SCORE_H_
#define INFERSCALE_CLI_SCORE_H_

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "app/app.h"
#include "app/fidelity.h"
#include "app/models.h"
#include "base/result.h"

namespace inferscale {

// How memory reaches the model: the three of MemoryMode, the text with its episodes shuffled, the
// newest turns of the user as far as the context goes, or the facts that the request names.
enum class ScoreMemory : uint8_t { kKv, kText, kNone, kShuffled, kAll, kGiven };

struct ScoreArm {
  ScoreMemory memory = ScoreMemory::kKv;
  std::string data_dir{};  // with the window, episode size and codec that it was filled with
  WindowStrategy window{};
  uint32_t episode = 0;
  KvCodec codec = KvCodec::kNone;
  ComposeOptions compose{};
  std::vector<std::string> given{};  // of kGiven: the "id" of facts' metadata, or ids; in order
};

struct ScoreRequest {
  std::string user;
  std::string question;
  std::string gold;                  // the right answer; empty: only an answer is generated
  std::vector<std::string> options;  // wrong answers, to be scored as well
  uint32_t max_tokens = 32;          // of the generated answer
  uint64_t seed = 0;                 // of the shuffle
  bool show = false;                 // tell the lines that the arms read too
  std::vector<ScoreArm> arms;
};

// One line of JSON; what an arm does not say is as in `defaults`. docs/quality.md names the
// members. kInvalid says which one is wrong and quotes nothing.
Result<ScoreRequest> ParseScoreRequest(std::string_view line, const AppOptions& defaults);

// {"embed": ["...", ...]} instead: texts that a peer wants as vectors of the same embedder; nullopt
// for any other line.
Result<std::optional<std::vector<std::string>>> ParseEmbedRequest(std::string_view line);

// Data directories are opened as they are asked for and share one model. Used by one thread.
class Scorer {
 public:
  static Result<std::unique_ptr<Scorer>> Open(const AppOptions& options);

  const ModelInfo& model() const { return engine().info(); }
  // One object for each arm, in order: docs/quality.md names its members.
  Result<boost::json::array> Score(const ScoreRequest& request);
  Result<std::vector<std::vector<float>>> Embed(std::span<const std::string> texts) {
    return models_.embedder().Embed(texts);
  }

 private:
  struct Measured;
  struct Composed;
  using References = std::unordered_map<Hash128, std::shared_ptr<const Measured>>;

  Scorer(AppOptions options, SharedModels models)
      : options_(std::move(options)), models_(std::move(models)) {}

  Engine& engine() const { return models_.engine(); }

  Result<App*> AppFor(const ScoreArm& arm);
  Result<boost::json::object> ScoreOne(const ScoreRequest& request, const ScoreArm& arm,
                                       References& references);
  Result<Composed> Compose(const ScoreRequest& request, const ScoreArm& arm, MemoryMode mode);
  Result<Composed> WholeConversation(const ScoreRequest& request, const ScoreArm& arm);
  Result<Composed> GivenFacts(const ScoreRequest& request, const ScoreArm& arm);
  // All of a user's, oldest first.
  Result<std::vector<Fact>> AllOf(const ScoreArm& arm, const std::string& user);
  // A prompt of text with the last of these facts, as many as the context holds.
  Result<Composed> Lines(const ScoreRequest& request, std::vector<Fact> facts);
  // Full prefill of the composition that the arm's numbers are compared with; measured once.
  Result<std::shared_ptr<const Measured>> Reference(const ScoreRequest& request, const Prompt& text,
                                                    References& references);
  Result<Measured> Measure(const ScoreRequest& request, const Prompt& prompt, uint64_t session);

  const AppOptions options_;
  const SharedModels models_;
  std::map<std::string, std::unique_ptr<App>> apps_;
  uint64_t sessions_ = 1;  // the first is WholeConversation's, which stays for the next question
};

}  // namespace inferscale

#endif  // INFERSCALE_CLI_SCORE_H_
