// Little-endian reading and writing of bytes that come from outside or go to disk. Field by field,
// never a struct: padding and byte order are not a file format.
#ifndef INFERSCALE_BASE_BYTES_H_
#define INFERSCALE_BASE_BYTES_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace inferscale {

static_assert(std::endian::native == std::endian::little, "on-disk formats are little-endian");

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

inline ByteSpan AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// Reads forward through a span. Once a read runs past the end, ok() is false for good and every
// further read returns zeros; so a parser may read a whole header and check once.
class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

  template <typename T>
  T Read() {
    static_assert(std::is_trivially_copyable_v<T> && std::is_arithmetic_v<T>);
    T value{};
    if (ByteSpan raw = Take(sizeof(T)); raw.size() == sizeof(T)) {
      std::memcpy(&value, raw.data(), sizeof(T));
    }
    return value;
  }

  // The next `count` bytes, or an empty span (and ok() false) if there are fewer.
  ByteSpan Take(size_t count) {
    if (!ok_ || count > remaining()) {
      ok_ = false;
      return {};
    }
    ByteSpan out = bytes_.subspan(offset_, count);
    offset_ += count;
    return out;
  }

  void Skip(size_t count) { Take(count); }
  bool ok() const { return ok_; }
  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }

 private:
  ByteSpan bytes_;
  size_t offset_ = 0;
  bool ok_ = true;
};

// Appends to a growing buffer.
class ByteWriter {
 public:
  template <typename T>
  void Write(T value) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_arithmetic_v<T>);
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
  }
  void WriteBytes(ByteSpan bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // Zeros up to the next multiple of `alignment`.
  void Align(size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> Release() { return std::move(bytes_); }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace inferscale

#endif  // INFERSCALE_BASE_BYTES_H_
