// Places of different sizes inside one range of bytes. Numbers only: it touches no memory.
#ifndef INFERSCALE_STORE_SLAB_ALLOCATOR_H_
#define INFERSCALE_STORE_SLAB_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace inferscale {

// Best fit over a list of free ranges, which are joined when they touch. Not thread-safe.
class SlabAllocator {
 public:
  explicit SlabAllocator(uint64_t bytes);

  // The offset of `bytes` > 0 free bytes, or nothing if no free range is long enough.
  std::optional<uint64_t> Allocate(uint64_t bytes);
  // Gives back what Allocate(bytes) returned.
  void Free(uint64_t offset, uint64_t bytes);

  uint64_t free_bytes() const { return free_bytes_; }

 private:
  void AddRange(uint64_t offset, uint64_t bytes);
  void RemoveRange(std::map<uint64_t, uint64_t>::iterator range);

  std::map<uint64_t, uint64_t> by_offset_;            // offset -> bytes
  std::set<std::pair<uint64_t, uint64_t>> by_bytes_;  // (bytes, offset): ties by lower offset
  uint64_t free_bytes_ = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_SLAB_ALLOCATOR_H_
