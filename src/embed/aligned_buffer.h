// Elements of undefined value that begin a cache line, so that no vector lies across two.
#ifndef INFERSCALE_EMBED_ALIGNED_BUFFER_H_
#define INFERSCALE_EMBED_ALIGNED_BUFFER_H_

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace inferscale {

struct AlignedDeleter {
  void operator()(void* data) const { ::operator delete[](data, std::align_val_t{64}); }
};

template <typename T>
using AlignedBuffer = std::unique_ptr<T[], AlignedDeleter>;

template <typename T>
AlignedBuffer<T> MakeAligned(size_t count) {
  static_assert(std::is_trivially_destructible_v<T>);
  return AlignedBuffer<T>(
      static_cast<T*>(::operator new[](count * sizeof(T), std::align_val_t{64})));
}

}  // namespace inferscale

#endif  // INFERSCALE_EMBED_ALIGNED_BUFFER_H_
