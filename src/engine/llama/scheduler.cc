#include "engine/llama/scheduler.h"

#include <algorithm>
#include <utility>

namespace inferscale {
namespace {

// Tokens computed at a time while somebody waits for the next token of a running answer.
constexpr uint32_t kSharedPrefill = 256;
constexpr uint32_t kSharedEncode = 64;
constexpr uint32_t kIdleEncode = 512;
// While prompts wait, encoding rests so many times as long as its last step took. Without a share
// of the time facts would never be encoded under load, and so every prompt would be as long as
// without memory.
constexpr int kEncodeRest = 4;

}  // namespace

Scheduler::Scheduler(llama_context* context, std::vector<Slot> slots, Encoder* encoder,
                     std::optional<Healer> healer, std::atomic<bool>* request_came,
                     uint32_t batch_tokens, const QueueLimits& limits)
    : context_(context),
      encoder_(encoder),
      healer_(std::move(healer)),
      request_came_(request_came),
      batch_tokens_(batch_tokens),
      limits_(limits) {
  for (Slot& slot : slots) slots_.push_back({std::move(slot), 0});
  thread_ = std::thread([this] { Run(); });
}

Scheduler::~Scheduler() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    work_.NotifyAll();
  }
  thread_.join();
}

Status Scheduler::Submit(std::unique_ptr<Task> task) {
  MutexLock lock(mutex_);
  if (!CheckQueue()) DropCancelled();
  INFERSCALE_TRY(CheckQueue());
  queue_.push_back(std::move(task));
  request_came_->store(true, std::memory_order_relaxed);
  work_.NotifyOne();
  return {};
}

Status Scheduler::CheckQueue() {
  if (queue_.size() >= limits_.requests) {
    return Fail(Code::kExhausted, "{} requests wait already", queue_.size());
  }
  const double most_ms = static_cast<double>(limits_.wait.count());
  if (most_ms > 0 && !queue_.empty() && queue_.front()->since_start.Ms() > most_ms) {
    return Fail(Code::kExhausted, "{} requests wait, the first of them for more than {} s",
                queue_.size(), most_ms / 1000);
  }
  return {};
}

Result<EncodeResult> Scheduler::Encode(const EncodeRequest& request) {
  INFERSCALE_TRY(encoder_->Check(request));
  auto wait = std::make_unique<EncodeWait>();
  wait->request = &request;
  auto result = wait->done.get_future();
  {
    MutexLock lock(mutex_);
    encodes_.push_back(std::move(wait));
    work_.NotifyOne();
  }
  return result.get();
}

void Scheduler::EndSession(uint64_t session) {
  MutexLock lock(mutex_);
  ended_sessions_.push_back(session);
  work_.NotifyOne();
}

void Scheduler::Run() {
  while (TakeWork()) {
    EndCancelled();
    StepSlots();
    StepEncode();
    StepHeal();
  }
  Shutdown();
}

bool Scheduler::AnyBusy() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const SlotUse& use) { return use.slot.busy(); });
}

// Waits until there is something to do. False when stopping.
bool Scheduler::TakeWork() {
  MutexLock lock(mutex_);
  while (!stopping_ && queue_.empty() && encodes_.empty() && ended_sessions_.empty() && !job_ &&
         Patient() == nullptr && !AnyBusy()) {
    work_.Wait(mutex_);
  }
  if (stopping_) return false;
  request_came_->store(false, std::memory_order_relaxed);
  for (const uint64_t session : std::exchange(ended_sessions_, {})) {
    for (SlotUse& use : slots_) {
      if (session != 0 && use.slot.session() == session) use.slot.EndSession();
    }
  }
  Admit();
  if (!job_ && !encodes_.empty()) {
    encoding_ = std::move(encodes_.front());
    encodes_.pop_front();
    job_.emplace(*encoding_->request);
  }
  return true;
}

void Scheduler::DropCancelled() {
  std::erase_if(queue_, [](const std::unique_ptr<Task>& task) {
    if (!task->channel->cancelled()) return false;
    task->Complete(FinishReason::kCancelled);
    return true;
  });
}

void Scheduler::Admit() {
  DropCancelled();
  for (auto it = queue_.begin(); it != queue_.end();) {
    SlotUse* use = SlotFor(**it);
    if (use == nullptr) {
      ++it;
      continue;
    }
    use->last_used = ++uses_;
    use->slot.Begin(std::move(*it));
    it = queue_.erase(it);
  }
}

// The slot that holds the task's session, else one that holds none, else the one whose session
// has rested longest. Null if it must wait.
Scheduler::SlotUse* Scheduler::SlotFor(const Task& task) {
  SlotUse* best = nullptr;
  for (SlotUse& use : slots_) {
    if (task.session != 0 && use.slot.session() == task.session) {
      return use.slot.busy() ? nullptr : &use;
    }
    if (use.slot.busy()) continue;
    const auto rank = [](const SlotUse& x) {
      return std::pair(x.slot.session() != 0, x.last_used);
    };
    if (best == nullptr || rank(use) < rank(*best)) best = &use;
  }
  if (best != nullptr) best->slot.EndSession();
  return best;
}

void Scheduler::EndCancelled() {
  for (SlotUse& use : slots_) {
    if (use.slot.busy() && use.slot.cancelled()) use.slot.Finish(FinishReason::kCancelled);
  }
}

void Scheduler::StepSlots() {
  batch_.Clear();
  std::vector<Slot*> used;
  uint32_t outputs = kScoreOutputs;
  // Running answers first, one token each; then prompts, with what room is left.
  for (SlotUse& use : slots_) {
    if (!use.slot.busy() || use.slot.in_prompt()) continue;
    use.slot.AddTo(batch_, 1, 1);
    used.push_back(&use.slot);
  }
  const uint32_t room = used.empty() ? batch_tokens_ : std::min(kSharedPrefill, batch_tokens_);
  for (SlotUse& use : slots_) {
    if (!use.slot.in_prompt() || batch_.size() >= room) continue;
    use.slot.Inject();
    const uint32_t added =
        use.slot.AddTo(batch_, room - batch_.size(), std::max(outputs, uint32_t{1}));
    outputs -= std::min(outputs, added);
    used.push_back(&use.slot);
  }
  if (batch_.empty()) return;
  if (const int code = batch_.Decode(context_); code != 0) {
    const Error error{Code::kInternal,
                      fmt::format("llama_decode of {} tokens returned {}", batch_.size(), code)};
    for (Slot* slot : used) slot->Fail(error);
    return;
  }
  for (Slot* slot : used) slot->TakeOutputs();
}

void Scheduler::StepEncode() {
  if (!job_) return;
  // A job that was told to stop takes no time any more.
  const bool stopped = encoding_->request->stop.stop_requested();
  const bool waiting = std::any_of(slots_.begin(), slots_.end(),
                                   [](const SlotUse& use) { return use.slot.in_prompt(); });
  const auto began = std::chrono::steady_clock::now();
  if (waiting && !stopped && began < encode_due_) return;
  const Result<bool> complete = encoder_->Step(*job_, AnyBusy() ? kSharedEncode : kIdleEncode);
  const auto ended = std::chrono::steady_clock::now();
  encode_due_ = ended + kEncodeRest * (ended - began);
  if (complete && !*complete) return;
  if (complete) {
    encoding_->done.set_value(encoder_->Take(*job_));
  } else {
    encoding_->done.set_value(tl::unexpected<Error>(complete.error()));
  }
  job_.reset();
  encoding_.reset();
}

Slot* Scheduler::Patient() {
  if (!healer_ || job_ || AnyBusy()) return nullptr;
  SlotUse* last = nullptr;
  for (SlotUse& use : slots_) {
    if (healer_->Wants(use.slot) && (last == nullptr || use.last_used > last->last_used)) {
      last = &use;
    }
  }
  return last == nullptr ? nullptr : &last->slot;
}

void Scheduler::StepHeal() {
  if (Slot* slot = Patient(); slot != nullptr) healer_->Step(*slot);
}

void Scheduler::Shutdown() {
  const Error error{Code::kCancelled, "the engine is shutting down"};
  for (SlotUse& use : slots_) {
    if (use.slot.busy()) use.slot.Fail(error);
  }
  MutexLock lock(mutex_);
  for (const auto& task : queue_) task->Fail(error);
  queue_.clear();
  if (encoding_) encodes_.push_back(std::move(encoding_));
  for (const auto& wait : encodes_) wait->done.set_value(tl::unexpected<Error>(error));
  encodes_.clear();
}

}  // namespace inferscale
