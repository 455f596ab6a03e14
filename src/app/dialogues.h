// Conversations for callers that keep the dialogue themselves and send it whole each time, as
// OpenAI's clients do: what was said before finds the conversation that holds it.
#ifndef INFERSCALE_APP_DIALOGUES_H_
#define INFERSCALE_APP_DIALOGUES_H_

#include <cstddef>
#include <list>
#include <memory>
#include <unordered_map>

#include "app/app.h"
#include "base/hash.h"
#include "base/mutex.h"

namespace inferscale {

// Thread-safe. Must not outlive its App.
class Dialogues {
 public:
  // Keeps the `max` that were used last.
  Dialogues(App& app, size_t max) : app_(app), max_(max) {}

  // App::Ask, but the turns before are not read again if this was asked and answered them, in the
  // same scope and mode; the facts of those turns are still in the prompt then. A question whose
  // facts are filtered, or that wants several different answers, stands by itself.
  Result<Answer> Ask(const AskRequest& request, const OnPiece& on_piece);

  size_t size() const;

 private:
  struct Kept {
    Hash128 said;
    std::unique_ptr<Conversation> conversation;
  };

  std::unique_ptr<Conversation> Take(const Hash128& said);
  void Keep(const Hash128& said, std::unique_ptr<Conversation> conversation);

  App& app_;
  const size_t max_;
  mutable Mutex mutex_;
  std::list<Kept> kept_ GUARDED_BY(mutex_);  // used last first
  std::unordered_map<Hash128, std::list<Kept>::iterator> by_said_ GUARDED_BY(mutex_);
};

}  // namespace inferscale

#endif  // INFERSCALE_APP_DIALOGUES_H_
