// One large piece of memory that is kept between uses. Fresh pages cost more than the copy into
// them, so it only grows, and asks for huge pages where the system has them.
#ifndef INFERSCALE_ENGINE_LLAMA_PAGE_BUFFER_H_
#define INFERSCALE_ENGINE_LLAMA_PAGE_BUFFER_H_

#include "base/bytes.h"

namespace inferscale {

class PageBuffer {
 public:
  PageBuffer() = default;
  ~PageBuffer();
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;

  // `size` bytes of any content, valid until the next call. Throws std::bad_alloc.
  MutableByteSpan Get(size_t size);

 private:
  void Release();

  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_PAGE_BUFFER_H_
