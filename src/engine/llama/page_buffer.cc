#include "engine/llama/page_buffer.h"

#include <sys/mman.h>

#include <new>

namespace inferscale {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}

PageBuffer::~PageBuffer() { Release(); }

MutableByteSpan PageBuffer::Get(size_t size) {
  if (size > capacity_) {
    Release();
    // A quarter more, so that a conversation that grows does not map anew with every turn.
    const size_t capacity = (size + size / 4 + kHugePage - 1) / kHugePage * kHugePage;
    void* data =
        mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    madvise(data, capacity, MADV_HUGEPAGE);  // a wish: without it the pages are small
    data_ = static_cast<std::byte*>(data);
    capacity_ = capacity;
  }
  return {data_, size};
}

void PageBuffer::Release() {
  if (data_ != nullptr) munmap(data_, capacity_);
  data_ = nullptr;
  capacity_ = 0;
}

}  // namespace inferscale
