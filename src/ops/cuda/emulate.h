// Runs kernel bodies on the host, so that machines without a GPU test the code that GPUs run.
//
// The threads of a block are fibers of the calling thread: barriers and warp functions really wait
// for each other, and between them threads run in an order drawn from a seed. Blocks run one after
// another, in a drawn order too. Shared memory is filled with 0xFF before each block, and each of
// its variables is an allocation of its own, so that AddressSanitizer sees what runs over.
//
// What is reported (EmulationError, naming threads and source lines): a thread that ends or waits
// elsewhere while others wait for it at a barrier or a warp function, and threads that meet in
// different calls. A body must own nothing when it calls them: an error abandons its stack.
#ifndef INFERSCALE_OPS_CUDA_EMULATE_H_
#define INFERSCALE_OPS_CUDA_EMULATE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace inferscale::cuda {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
  Dim3 grid = {}, block = {};
  size_t dynamic_shared = 0;
  uint32_t seed = 0;
};

class EmulationError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Runs `body` once for every thread of the grid.
void Emulate(const Launch& launch, const std::function<void()>& body);

// The same in a plain loop: far quicker, for bodies whose threads never wait or share.
void EmulateIndependent(const Launch& launch, const std::function<void()>& body);

// The rest is what ops/cuda/portable.h is made of.

// NOLINTBEGIN(readability-identifier-naming): CUDA's own names.
inline constinit thread_local Dim3 threadIdx;
inline constinit thread_local Dim3 blockIdx;
inline constinit thread_local Dim3 blockDim;
inline constinit thread_local Dim3 gridDim;
// NOLINTEND(readability-identifier-naming)

// A call in the source; the compilers at hand do not all have std::source_location.
struct Where {
  const char* file = "";
  const char* function = "";
  uint32_t line = 0;

  static constexpr Where Current(const char* file = __builtin_FILE(),
                                 const char* function = __builtin_FUNCTION(),
                                 uint32_t line = __builtin_LINE()) {
    return {file, function, line};
  }
  bool operator==(const Where& other) const {
    return line == other.line && std::strcmp(file, other.file) == 0 &&
           std::strcmp(function, other.function) == 0;
  }
};

// Waits for the warp (block), and returns what each of its threads brought. The values live until
// the calling thread meets again.
std::span<const uint64_t> MeetWarp(const char* what, uint64_t value, const Where& where);
std::span<const uint64_t> MeetBlock(const char* what, uint64_t value, const Where& where);
uint32_t LaneId();

std::byte* DynamicShared();
// The block's memory of the variable that is declared at `where`.
void* SharedAt(const Where& where, size_t bytes);

template <typename T>
T& SharedVariable(Where where = Where::Current()) {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 16);
  return *static_cast<T*>(SharedAt(where, sizeof(T)));
}

template <typename T>
uint64_t ToLane(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <typename T>
T FromLane(std::span<const uint64_t> lanes, uint32_t lane) {
  if (lane >= lanes.size()) throw EmulationError("a shuffle from a lane that does not exist");
  T value;
  std::memcpy(&value, &lanes[lane], sizeof(T));
  return value;
}

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_CUDA_EMULATE_H_
