#include "app/dialogues.h"

#include <string_view>
#include <utility>

namespace inferscale {
namespace {

// Everything that the held prompt depends on and that the next request has to agree with.
Hash128 HashSaid(const AskRequest& request, const PastTurn* last) {
  Hasher hasher;
  const auto add = [&](std::string_view text) { hasher.Add(uint64_t{text.size()}).Add(text); };
  const Scope& scope = request.scope;
  for (const std::string_view part :
       {MemoryModeName(request.mode), std::string_view(scope.tenant), std::string_view(scope.user),
        std::string_view(scope.agent), std::string_view(scope.run)}) {
    add(part);
  }
  for (const PastTurn& turn : request.before) {
    add(turn.user);
    add(turn.assistant);
  }
  if (last != nullptr) {
    add(last->user);
    add(last->assistant);
  }
  return hasher.Digest();
}

}  // namespace

std::unique_ptr<Conversation> Dialogues::Take(const Hash128& said) {
  MutexLock lock(mutex_);
  const auto found = by_said_.find(said);
  if (found == by_said_.end()) return nullptr;
  auto conversation = std::move(found->second->conversation);
  kept_.erase(found->second);
  by_said_.erase(found);
  return conversation;
}

void Dialogues::Keep(const Hash128& said, std::unique_ptr<Conversation> conversation) {
  std::list<Kept> dropped;  // ended without the lock: that may wait for the engine
  MutexLock lock(mutex_);
  if (const auto same = by_said_.find(said); same != by_said_.end()) {
    dropped.splice(dropped.end(), kept_, same->second);
    by_said_.erase(same);
  }
  kept_.push_front({said, std::move(conversation)});
  by_said_[said] = kept_.begin();
  if (kept_.size() > max_) {
    by_said_.erase(kept_.back().said);
    dropped.splice(dropped.end(), kept_, std::prev(kept_.end()));
  }
}

Result<Answer> Dialogues::Ask(const AskRequest& request, const OnPiece& on_piece) {
  const bool filtered = request.filter != nullptr && !request.filter->matches_all();
  const bool several = DistinctChoices(request.sampling, request.choices) > 1;
  if (max_ == 0 || filtered || several || request.mode == MemoryMode::kNone) {
    return app_.Ask(request, on_piece);
  }
  std::unique_ptr<Conversation> conversation;
  if (!request.before.empty()) conversation = Take(HashSaid(request, nullptr));
  if (conversation == nullptr) conversation = app_.StartConversation();
  INFERSCALE_ASSIGN(Answer answer, conversation->Ask(request, on_piece));
  // What was cut short, a client shows differently.
  if (answer.finish != FinishReason::kCancelled) {
    const PastTurn turn{request.question, answer.text};
    Keep(HashSaid(request, &turn), std::move(conversation));
  }
  return answer;
}

size_t Dialogues::size() const {
  MutexLock lock(mutex_);
  return kept_.size();
}

}  // namespace inferscale
