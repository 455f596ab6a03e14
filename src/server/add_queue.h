// Memories that are added after their request was answered: in turn, by one thread. Nothing of it
// survives the process.
#ifndef INFERSCALE_SERVER_ADD_QUEUE_H_
#define INFERSCALE_SERVER_ADD_QUEUE_H_

#include <boost/json/array.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "memory/fact.h"

namespace inferscale {

enum class AddState : uint8_t { kPending, kRunning, kSucceeded, kFailed };
std::string_view AddStateName(AddState state);  // "PENDING", ... as Mem0 has them

// What became of an addition.
struct AddEventInfo {
  std::string id;
  Scope scope;
  AddState state = AddState::kPending;
  boost::json::array results;  // once it has succeeded; ids and events, no text
  std::string error;           // if it has failed
  int64_t created_ms = 0;
  std::optional<int64_t> started_ms;
  std::optional<int64_t> ended_ms;
};

// Thread-safe.
class AddQueue {
 public:
  using Work = std::function<Result<boost::json::array>()>;

  // At most so many wait; of so many that have ended it is known what became of them.
  explicit AddQueue(const Clock& clock, size_t waiting = 256, size_t ended = 10'000);
  ~AddQueue();  // what has not begun is not done
  AddQueue(const AddQueue&) = delete;
  AddQueue& operator=(const AddQueue&) = delete;

  // The event as it is now. kExhausted if too many wait.
  Result<AddEventInfo> Put(const Scope& scope, Work work) EXCLUDES(mutex_);
  // kNotFound, also for another tenant's and for one of an earlier process.
  Result<AddEventInfo> Find(const std::string& tenant, const std::string& id) EXCLUDES(mutex_);
  // Before what a scope holds is deleted: what waits for it fails, and what runs is waited for. So
  // nothing comes back that was sent before.
  void Drop(const Scope& scope) EXCLUDES(mutex_);

 private:
  struct Item {
    std::shared_ptr<AddEventInfo> event;
    Work work;
  };
  void Run();
  void End(AddEventInfo& event, Result<boost::json::array> results) REQUIRES(mutex_);

  const Clock& clock_;
  const size_t max_waiting_;
  const size_t max_ended_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Item> waiting_ GUARDED_BY(mutex_);
  std::shared_ptr<AddEventInfo> running_ GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<AddEventInfo>> events_ GUARDED_BY(mutex_);
  std::deque<std::string> ended_ GUARDED_BY(mutex_);  // ids, oldest first
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_ADD_QUEUE_H_
