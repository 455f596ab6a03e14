#include "server/add_queue.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "server/openai_json.h"

namespace inferscale {
namespace {

// Whether facts of `scope` are among those that `deleted` names.
bool Within(const Scope& scope, const Scope& deleted) {
  const auto fits = [](const std::string& name, const std::string& wanted) {
    return wanted.empty() || name == wanted;
  };
  return scope.tenant == deleted.tenant && fits(scope.user, deleted.user) &&
         fits(scope.agent, deleted.agent) && fits(scope.run, deleted.run);
}

}  // namespace

std::string_view AddStateName(AddState state) {
  switch (state) {
    case AddState::kPending:
      return "PENDING";
    case AddState::kRunning:
      return "RUNNING";
    case AddState::kSucceeded:
      return "SUCCEEDED";
    case AddState::kFailed:
      return "FAILED";
  }
  return "UNKNOWN";
}

AddQueue::AddQueue(const Clock& clock, size_t waiting, size_t ended)
    : clock_(clock), max_waiting_(waiting), max_ended_(ended), thread_([this] { Run(); }) {}

AddQueue::~AddQueue() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

Result<AddEventInfo> AddQueue::Put(const Scope& scope, Work work) {
  auto event = std::make_shared<AddEventInfo>();
  event->id = NewAnswerId("event");
  event->scope = scope;
  event->created_ms = clock_.NowMs();
  MutexLock lock(mutex_);
  if (waiting_.size() >= max_waiting_) {
    return Fail(Code::kExhausted, "{} additions wait already; try again later", waiting_.size());
  }
  events_[event->id] = event;
  waiting_.push_back({event, std::move(work)});
  changed_.NotifyAll();
  return *event;
}

Result<AddEventInfo> AddQueue::Find(const std::string& tenant, const std::string& id) {
  MutexLock lock(mutex_);
  const auto found = events_.find(id);
  if (found == events_.end() || found->second->scope.tenant != tenant) {
    return Fail(Code::kNotFound,
                "there is no such event; what was sent before this start is not known");
  }
  return *found->second;
}

void AddQueue::Drop(const Scope& scope) {
  MutexLock lock(mutex_);
  const auto dropped =
      std::stable_partition(waiting_.begin(), waiting_.end(),
                            [&](const Item& item) { return !Within(item.event->scope, scope); });
  for (auto item = dropped; item != waiting_.end(); ++item) {
    End(*item->event, Fail(Code::kCancelled, "what it is of was deleted meanwhile"));
  }
  waiting_.erase(dropped, waiting_.end());
  while (running_ != nullptr && Within(running_->scope, scope)) changed_.Wait(mutex_);
}

void AddQueue::End(AddEventInfo& event, Result<boost::json::array> results) {
  event.ended_ms = clock_.NowMs();
  event.state = results ? AddState::kSucceeded : AddState::kFailed;
  if (results) {
    event.results = *std::move(results);
  } else {
    event.error = results.error().message;
  }
  ended_.push_back(event.id);
  while (ended_.size() > max_ended_) {
    events_.erase(ended_.front());
    ended_.pop_front();
  }
}

void AddQueue::Run() {
  while (true) {
    Item item;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stopping_) changed_.Wait(mutex_);
      if (stopping_) return;
      item = std::move(waiting_.front());
      waiting_.pop_front();
      running_ = item.event;
      running_->state = AddState::kRunning;
      running_->started_ms = clock_.NowMs();
    }
    Result<boost::json::array> results = Fail(Code::kInternal, "it was not done");
    try {
      results = item.work();
    } catch (const std::exception& error) {
      results = Fail(Code::kInternal, "{}", error.what());
    }
    MutexLock lock(mutex_);
    End(*item.event, std::move(results));
    running_ = nullptr;
    changed_.NotifyAll();
  }
}

}  // namespace inferscale
