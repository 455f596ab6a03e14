#include "emulated_streams.h"

#include <atomic>
#include <deque>
#include <memory>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace inferscale {

namespace {

struct Stream;

// A point in a stream's work.
struct Moment {
  Stream* stream = nullptr;
  bool passed = false;
};

struct Step {  // one of the three
  std::function<void()> work;
  std::shared_ptr<Moment> wait, mark;
};

struct Stream {
  std::deque<Step> steps;
};

struct Event {
  std::shared_ptr<Moment> moment;  // when it was last recorded
};

// Work runs under the mutex, in whichever thread calls.
class Streams {
 public:
  void SetRules(const EmulatedRules& rules) {
    MutexLock lock(mutex_);
    for (auto& [handle, stream] : streams_) Finish(*stream);
    rules_ = rules;
    random_.seed(rules.seed);
    lazy_ = rules.lazy;
  }

  bool lazy() const { return lazy_; }

  bool IsRefused(emulated::Call call) {
    MutexLock lock(mutex_);
    switch (call) {
      case emulated::Call::kAlloc:
        return Chance(rules_.refuse_alloc);
      case emulated::Call::kCopy:
        return Chance(rules_.refuse_copy);
      case emulated::Call::kEvent:
        return Chance(rules_.refuse_event);
    }
    return false;
  }

  void Enqueue(void* handle, Step step) {
    MutexLock lock(mutex_);
    streams_.at(handle)->steps.push_back(std::move(step));
    Drift();
  }

  void* Create() {
    MutexLock lock(mutex_);
    auto stream = std::make_unique<Stream>();
    void* handle = stream.get();
    streams_.emplace(handle, std::move(stream));
    return handle;
  }

  void Synchronize(void* handle, bool destroy = false) {
    MutexLock lock(mutex_);
    Finish(*streams_.at(handle));
    if (destroy) streams_.erase(handle);
  }

  void Record(Event& event, void* handle) {
    MutexLock lock(mutex_);
    event.moment = std::make_shared<Moment>(Moment{streams_.at(handle).get()});
    streams_.at(handle)->steps.push_back({nullptr, nullptr, event.moment});
    Drift();
  }

  bool Query(const Event& event) {
    MutexLock lock(mutex_);
    Drift();
    return event.moment == nullptr || event.moment->passed;
  }

  void Wait(void* handle, const Event& event) {
    MutexLock lock(mutex_);
    if (event.moment == nullptr) return;
    streams_.at(handle)->steps.push_back({nullptr, event.moment, nullptr});
    Drift();
  }

 private:
  bool Chance(double probability) REQUIRES(mutex_) {
    return probability > 0 && std::bernoulli_distribution(probability)(random_);
  }

  // False if the stream has nothing to do, or waits.
  bool Advance(Stream& stream) REQUIRES(mutex_) {
    if (stream.steps.empty()) return false;
    Step& front = stream.steps.front();
    if (front.wait != nullptr && !front.wait->passed) return false;
    const Step step = std::move(front);
    stream.steps.pop_front();
    if (step.work) step.work();
    if (step.mark != nullptr) step.mark->passed = true;
    return true;
  }

  // A wait is for something that was queued before it, so this ends.
  void Finish(Stream& stream) REQUIRES(mutex_) {
    while (!stream.steps.empty()) {
      const std::shared_ptr<Moment> wait = stream.steps.front().wait;
      while (wait != nullptr && !wait->passed) {
        if (!Advance(*wait->stream)) Finish(*wait->stream);
      }
      Advance(stream);
    }
  }

  // Mostly nothing moves; now and then one stream runs a little or a lot.
  void Drift() REQUIRES(mutex_) {
    if (!Chance(0.2)) return;
    const auto steps = std::uniform_int_distribution<int>(0, 1)(random_) == 0 ? 2 : 40;
    auto stream = streams_.begin();
    std::advance(stream, std::uniform_int_distribution<size_t>(0, streams_.size() - 1)(random_));
    for (int i = 0; i < steps && Advance(*stream->second); ++i) {
    }
  }

  Mutex mutex_;
  std::atomic<bool> lazy_ = false;
  EmulatedRules rules_ GUARDED_BY(mutex_);
  std::mt19937 random_ GUARDED_BY(mutex_);
  std::unordered_map<void*, std::unique_ptr<Stream>> streams_ GUARDED_BY(mutex_) = [] {
    std::unordered_map<void*, std::unique_ptr<Stream>> streams;
    streams.emplace(nullptr, std::make_unique<Stream>());
    return streams;
  }();
};

Streams& All() {
  static Streams streams;
  return streams;
}

Event& EventOf(void* event) { return *static_cast<Event*>(event); }

}  // namespace

void SetEmulatedRules(const EmulatedRules& rules) { All().SetRules(rules); }

namespace emulated {

bool IsRefused(Call call) { return All().IsRefused(call); }

int Enqueue(void* stream, std::function<void()> work) {
  if (All().lazy()) {
    All().Enqueue(stream, {std::move(work), nullptr, nullptr});
  } else {
    work();
  }
  return 0;
}

int StreamCreate(void** out) {
  *out = All().Create();
  return 0;
}

int StreamDestroy(void* stream) {
  All().Synchronize(stream, true);
  return 0;
}

int StreamSynchronize(void* stream) {
  All().Synchronize(stream);
  return 0;
}

int EventCreate(void** out) {
  if (IsRefused(Call::kEvent)) return kRefused;
  *out = new Event;
  return 0;
}

int EventDestroy(void* event) {
  delete &EventOf(event);
  return 0;
}

int EventRecord(void* event, void* stream) {
  if (IsRefused(Call::kEvent)) return kRefused;
  All().Record(EventOf(event), stream);
  return 0;
}

int EventQuery(void* event, int* done) {
  if (IsRefused(Call::kEvent)) return kRefused;
  *done = All().Query(EventOf(event)) ? 1 : 0;
  return 0;
}

int StreamWait(void* stream, void* event) {
  if (IsRefused(Call::kEvent)) return kRefused;
  All().Wait(stream, EventOf(event));
  return 0;
}

}  // namespace emulated

}  // namespace inferscale
