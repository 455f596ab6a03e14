// Streams and events without a GPU. Eager streams run what they are given at once. Lazy ones keep
// it, and run it when someone waits for it or as far as chance takes them, so that a forgotten wait
// shows as wrong bytes and memory that was given up too early as an AddressSanitizer report.
#ifndef INFERSCALE_TESTS_OPS_EMULATED_STREAMS_H_
#define INFERSCALE_TESTS_OPS_EMULATED_STREAMS_H_

#include <cstdint>
#include <functional>

namespace inferscale {

struct EmulatedRules {
  bool lazy = false;
  uint32_t seed = 0;  // of all chance
  // How often calls of a kind are refused, which then do nothing.
  double refuse_alloc = 0;
  double refuse_copy = 0;   // and fills
  double refuse_event = 0;  // making, recording, asking, waiting for one
};

// For all emulated devices, from now on. What was queued is finished first.
void SetEmulatedRules(const EmulatedRules& rules);

// As the functions of cuda::Plugin. Null is a stream like the others.
namespace emulated {

enum class Call : uint8_t { kAlloc, kCopy, kEvent };
bool IsRefused(Call call);
inline constexpr int kRefused = 2;

int Enqueue(void* stream, std::function<void()> work);
int StreamCreate(void** out);
int StreamDestroy(void* stream);  // finishes its work
int StreamSynchronize(void* stream);
int EventCreate(void** out);
int EventDestroy(void* event);
int EventRecord(void* event, void* stream);
int EventQuery(void* event, int* done);
int StreamWait(void* stream, void* event);

}  // namespace emulated

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_OPS_EMULATED_STREAMS_H_
