#include "store/slab_allocator.h"

#include <iterator>

namespace inferscale {

SlabAllocator::SlabAllocator(uint64_t bytes) {
  if (bytes != 0) AddRange(0, bytes);
  free_bytes_ = bytes;
}

std::optional<uint64_t> SlabAllocator::Allocate(uint64_t bytes) {
  const auto fit = by_bytes_.lower_bound({bytes, 0});
  if (fit == by_bytes_.end()) return std::nullopt;
  const auto [range_bytes, offset] = *fit;
  RemoveRange(by_offset_.find(offset));
  if (range_bytes > bytes) AddRange(offset + bytes, range_bytes - bytes);
  free_bytes_ -= bytes;
  return offset;
}

void SlabAllocator::Free(uint64_t offset, uint64_t bytes) {
  free_bytes_ += bytes;
  if (const auto next = by_offset_.find(offset + bytes); next != by_offset_.end()) {
    bytes += next->second;
    RemoveRange(next);
  }
  if (auto before = by_offset_.lower_bound(offset); before != by_offset_.begin()) {
    before = std::prev(before);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      RemoveRange(before);
    }
  }
  AddRange(offset, bytes);
}

void SlabAllocator::AddRange(uint64_t offset, uint64_t bytes) {
  by_offset_.emplace(offset, bytes);
  by_bytes_.emplace(bytes, offset);
}

void SlabAllocator::RemoveRange(std::map<uint64_t, uint64_t>::iterator range) {
  by_bytes_.erase({range->second, range->first});
  by_offset_.erase(range);
}

}  // namespace inferscale
