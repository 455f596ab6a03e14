// A mutex that clang's -Wthread-safety can check (docs: Thread Safety Analysis in clang's manual).
#ifndef INFERSCALE_BASE_MUTEX_H_
#define INFERSCALE_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define INFERSCALE_TSA(x) __attribute__((x))
#else
#define INFERSCALE_TSA(x)
#endif
#define GUARDED_BY(x) INFERSCALE_TSA(guarded_by(x))
#define REQUIRES(...) INFERSCALE_TSA(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) INFERSCALE_TSA(locks_excluded(__VA_ARGS__))

namespace inferscale {

class INFERSCALE_TSA(capability("mutex")) Mutex {
 public:
  void lock() INFERSCALE_TSA(acquire_capability()) { mutex_.lock(); }
  void unlock() INFERSCALE_TSA(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class INFERSCALE_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) INFERSCALE_TSA(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() INFERSCALE_TSA(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits on a Mutex that the caller holds.
class CondVar {
 public:
  void Wait(Mutex& mutex) REQUIRES(mutex) { cv_.wait(mutex); }
  // False if `timeout` passed first.
  bool WaitFor(Mutex& mutex, std::chrono::milliseconds timeout) REQUIRES(mutex) {
    return cv_.wait_for(mutex, timeout) == std::cv_status::no_timeout;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable_any cv_;
};

}  // namespace inferscale

#endif  // INFERSCALE_BASE_MUTEX_H_
