#include "ops/cuda/emulate.h"

#include <fmt/format.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define INFERSCALE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define INFERSCALE_ASAN 1
#endif
#endif
#ifdef INFERSCALE_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace inferscale::cuda {

namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
constexpr uint32_t kLanes = 32;

// A stack to run on; AddressSanitizer must hear of every change.
struct Fiber {
  ucontext_t context = {};
  const void* stack = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;
};

void Switch(Fiber& from, Fiber& to, [[maybe_unused]] bool ends) {
#ifdef INFERSCALE_ASAN
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
#endif
  swapcontext(&from.context, &to.context);
#ifdef INFERSCALE_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

struct Call {
  const char* what = nullptr;
  Where where;

  bool operator==(const Call& other) const {
    return std::strcmp(what, other.what) == 0 && where == other.where;
  }
  std::string ToString() const { return fmt::format("{} at {}:{}", what, where.file, where.line); }
};

// Where `size` threads wait for each other. Values alternate between two sets: a thread that runs
// ahead can be in the next meeting, never in the one after, while others still read this one's.
struct Meeting {
  Meeting(uint32_t first_thread, uint32_t size)
      : first(first_thread), values{std::vector<uint64_t>(size), std::vector<uint64_t>(size)} {}

  uint32_t first;
  std::vector<uint64_t> values[2];
  int turn = 0;
  Call call;
  std::vector<uint32_t> waiting;
};

struct SharedMemory {
  SharedMemory(const Where& declared, size_t size)
      : where(declared), bytes(size), data(std::make_unique<std::byte[]>(size)) {
    Poison();
  }
  void Poison() { std::memset(data.get(), 0xFF, bytes); }

  Where where;
  size_t bytes;
  std::unique_ptr<std::byte[]> data;
};

Dim3 Unflatten(uint32_t index, const Dim3& size) {
  return {index % size.x, index / size.x % size.y, index / size.x / size.y};
}
uint32_t Volume(const Dim3& size) { return size.x * size.y * size.z; }

class Scheduler {
 public:
  Scheduler(const Launch& launch, const std::function<void()>& body);

  void RunBlock(uint32_t block);

  std::span<const uint64_t> Meet(Meeting& meeting, uint64_t value, const Call& call);
  Meeting& Warp() { return warps_[current_ / kLanes]; }
  Meeting& Block() { return block_; }
  uint32_t current() const { return current_; }
  std::byte* DynamicShared() { return dynamic_.data.get(); }
  void* SharedAt(const Where& where, size_t bytes);

 private:
  static void Entry();

  // Runs other threads, until one of them wakes the current one.
  void Leave(bool ends);
  std::string DescribeWaiting() const;

  const Launch& launch_;
  const std::function<void()>& body_;
  const uint32_t threads_;
  std::minstd_rand random_;
  std::unique_ptr<std::byte[]> stacks_;
  Fiber main_;
  std::vector<Fiber> fibers_;
  std::vector<uint32_t> ready_;
  uint32_t current_ = 0;
  uint32_t ended_ = 0;
  std::string error_;
  Meeting block_;
  std::vector<Meeting> warps_;
  SharedMemory dynamic_;
  std::vector<SharedMemory> shared_;
};

thread_local Scheduler* scheduler = nullptr;

Scheduler& Running(const char* what) {
  if (scheduler == nullptr) {
    throw EmulationError(fmt::format("{} in a body that was said to be independent", what));
  }
  return *scheduler;
}

Scheduler::Scheduler(const Launch& launch, const std::function<void()>& body)
    : launch_(launch),
      body_(body),
      threads_(Volume(launch.block)),
      random_(launch.seed + 1),
      stacks_(new std::byte[threads_ * kStackBytes]),
      fibers_(threads_),
      block_(0, threads_),
      dynamic_({}, launch.dynamic_shared) {
  for (uint32_t first = 0; first < threads_; first += kLanes) {
    warps_.emplace_back(first, std::min(kLanes, threads_ - first));
  }
}

void Scheduler::Entry() {
  Scheduler& self = *scheduler;
#ifdef INFERSCALE_ASAN
  // The first switch to a fiber comes from anywhere; only the main stack's place is not known yet.
  const void* from = nullptr;
  size_t from_bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &from, &from_bytes);
  if (self.main_.stack == nullptr) {
    self.main_.stack = from;
    self.main_.stack_bytes = from_bytes;
  }
#endif
  try {
    self.body_();
    ++self.ended_;
    self.Leave(true);
  } catch (const std::exception& error) {
    self.error_ = error.what();
  }
  Switch(self.fibers_[self.current_], self.main_, true);
}

void Scheduler::RunBlock(uint32_t block) {
  blockIdx = Unflatten(block, launch_.grid);
  dynamic_.Poison();
  for (SharedMemory& variable : shared_) variable.Poison();
  ready_.resize(threads_);
  std::iota(ready_.begin(), ready_.end(), 0U);
  ended_ = 0;
  for (uint32_t thread = 0; thread < threads_; ++thread) {
    Fiber& fiber = fibers_[thread];
    getcontext(&fiber.context);
    std::byte* const stack = stacks_.get() + thread * kStackBytes;
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    fiber.stack = stack;
    fiber.stack_bytes = kStackBytes;
    makecontext(&fiber.context, &Scheduler::Entry, 0);
  }
  current_ = threads_;
  Leave(false);
  if (!error_.empty()) throw EmulationError(error_);
}

void Scheduler::Leave(bool ends) {
  Fiber& from = current_ < threads_ ? fibers_[current_] : main_;
  if (ready_.empty()) {
    if (ended_ < threads_) error_ = DescribeWaiting();
    Switch(from, main_, ends);
    return;
  }
  std::swap(ready_[random_() % ready_.size()], ready_.back());
  current_ = ready_.back();
  ready_.pop_back();
  threadIdx = Unflatten(current_, launch_.block);
  Switch(from, fibers_[current_], ends);
}

std::string Scheduler::DescribeWaiting() const {
  std::string text = fmt::format("{} of {} threads of block ({}, {}, {}) ended; others wait for",
                                 ended_, threads_, blockIdx.x, blockIdx.y, blockIdx.z);
  const auto describe = [&](const Meeting& meeting) {
    if (meeting.waiting.empty()) return;
    const size_t size = meeting.values[0].size();
    text += fmt::format(" [threads {} to {} at {}: {} of {} came]", meeting.first,
                        meeting.first + size - 1, meeting.call.ToString(), meeting.waiting.size(),
                        size);
  };
  describe(block_);
  for (const Meeting& warp : warps_) describe(warp);
  return text;
}

std::span<const uint64_t> Scheduler::Meet(Meeting& meeting, uint64_t value, const Call& call) {
  if (meeting.waiting.empty()) {
    meeting.call = call;
  } else if (!(meeting.call == call)) {
    throw EmulationError(fmt::format("thread {} is in {} while thread {} is in {}", current_,
                                     call.ToString(), meeting.waiting.front(),
                                     meeting.call.ToString()));
  }
  std::vector<uint64_t>& values = meeting.values[meeting.turn];
  values[current_ - meeting.first] = value;
  if (meeting.waiting.size() + 1 < values.size()) {
    meeting.waiting.push_back(current_);
    Leave(false);
  } else {
    ready_.insert(ready_.end(), meeting.waiting.begin(), meeting.waiting.end());
    meeting.waiting.clear();
    meeting.turn ^= 1;
  }
  return values;
}

void* Scheduler::SharedAt(const Where& where, size_t bytes) {
  for (const SharedMemory& variable : shared_) {
    if (variable.bytes == bytes && variable.where == where) return variable.data.get();
  }
  return shared_.emplace_back(where, bytes).data.get();
}

// Calls `run` with every block's index, in a drawn order.
template <typename Run>
void ForEachBlock(const Launch& launch, Run run) {
  gridDim = launch.grid;
  blockDim = launch.block;
  std::vector<uint32_t> blocks(Volume(launch.grid));
  std::iota(blocks.begin(), blocks.end(), 0U);
  std::shuffle(blocks.begin(), blocks.end(), std::minstd_rand(launch.seed + 1));
  for (const uint32_t block : blocks) run(block);
}

}  // namespace

void Emulate(const Launch& launch, const std::function<void()>& body) {
  Scheduler running(launch, body);
  struct Registration {
    explicit Registration(Scheduler* which) { scheduler = which; }
    ~Registration() { scheduler = nullptr; }
  } const registration(&running);
  ForEachBlock(launch, [&](uint32_t block) { running.RunBlock(block); });
}

void EmulateIndependent(const Launch& launch, const std::function<void()>& body) {
  ForEachBlock(launch, [&](uint32_t block) {
    blockIdx = Unflatten(block, launch.grid);
    for (uint32_t thread = 0; thread < Volume(launch.block); ++thread) {
      threadIdx = Unflatten(thread, launch.block);
      body();
    }
  });
}

std::span<const uint64_t> MeetWarp(const char* what, uint64_t value, const Where& where) {
  Scheduler& running = Running(what);
  return running.Meet(running.Warp(), value, {what, where});
}

std::span<const uint64_t> MeetBlock(const char* what, uint64_t value, const Where& where) {
  Scheduler& running = Running(what);
  return running.Meet(running.Block(), value, {what, where});
}

uint32_t LaneId() { return Running("a warp function").current() % kLanes; }

std::byte* DynamicShared() { return Running("shared memory").DynamicShared(); }

void* SharedAt(const Where& where, size_t bytes) {
  return Running("shared memory").SharedAt(where, bytes);
}

}  // namespace inferscale::cuda
