// The models behind the application: the one place that names an embedder and an engine.
#ifndef INFERSCALE_APP_MODELS_H_
#define INFERSCALE_APP_MODELS_H_

#include <memory>
#include <utility>

#include "app/app.h"

namespace inferscale {

struct Models {
  std::unique_ptr<Embedder> embedder;  // null if `need` is kFacts
  std::unique_ptr<Engine> engine;      // null unless `need` is kAnswer
};

// One set of models for several applications.
class SharedModels {
 public:
  // Both must be there.
  explicit SharedModels(Models models)
      : embedder_(std::move(models.embedder)), engine_(std::move(models.engine)) {}

  Engine& engine() const { return *engine_; }
  Embedder& embedder() const { return *embedder_; }
  Models Share() const;

 private:
  std::shared_ptr<Embedder> embedder_;
  std::shared_ptr<Engine> engine_;
};

// Loads what `need` asks for.
Result<Models> LoadModels(const AppOptions& options, Need need);

// An application over models of the caller's; what it can do follows from which of them are there.
Result<std::unique_ptr<App>> OpenApp(AppOptions options, Models models);

}  // namespace inferscale

#endif  // INFERSCALE_APP_MODELS_H_
