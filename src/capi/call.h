// What every function of the C interface does around its work: no exception leaves it, nothing that
// it was given is trusted, and errors are told in the caller's struct.
#ifndef INFERSCALE_CAPI_CALL_H_
#define INFERSCALE_CAPI_CALL_H_

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "inferscale/inferscale.h"
#include "store/kv_store.h"

namespace inferscale::capi {

// Cuts `message` off between two characters if it is too long. Returns `code`.
int32_t Report(int32_t code, std::string_view message, inferscale_error* error) noexcept;

// Runs `body`, which returns a Status.
template <typename Body>
int32_t Call(inferscale_error* error, const Body& body) noexcept {
  try {
    const Status status = body();
    if (status) return Report(INFERSCALE_OK, "", error);
    return Report(static_cast<int32_t>(status.error().code), status.error().message, error);
  } catch (const std::bad_alloc&) {
    return Report(INFERSCALE_EXHAUSTED, "out of memory", error);
  } catch (const std::system_error& failure) {  // no thread to be had
    return Report(INFERSCALE_TRANSIENT, failure.what(), error);
  } catch (const std::exception& failure) {
    return Report(INFERSCALE_INTERNAL, failure.what(), error);
  } catch (...) {
    return Report(INFERSCALE_INTERNAL, "an unknown exception", error);
  }
}

inline Status NotNull(const void* pointer, std::string_view name) {
  if (pointer != nullptr) return {};
  return Fail(Code::kInvalid, "{} is NULL", name);
}

template <typename T>
Result<std::span<T>> Array(T* data, uint64_t count, std::string_view name) {
  if (data == nullptr && count != 0) return Fail(Code::kInvalid, "{} is NULL", name);
  return std::span<T>(data, data == nullptr ? 0 : count);
}

// A struct that begins with its size: what its caller does not know is 0, and what we do not know
// must be.
template <typename T>
Result<T> Sized(const T* given, std::string_view name) {
  constexpr uint32_t kLargest = 4096;
  INFERSCALE_TRY(NotNull(given, name));
  const uint32_t size = given->size;
  if (size < sizeof(size) || size > kLargest) {
    return Fail(Code::kInvalid, "{}.size is {}", name, size);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return Fail(Code::kUnsupported, "{} has members that this version does not know", name);
    }
  }
  T out = {};
  std::memcpy(&out, given, std::min<size_t>(size, sizeof(T)));
  out.size = sizeof(T);
  return out;
}

Hash128 FromKey(const inferscale_key& key);
inferscale_key ToKey(const Hash128& hash);
std::vector<Hash128> FromKeys(std::span<const inferscale_key> keys);
Result<KvOwner> FromOwner(const inferscale_owner* owner);
// kInvalid for a number that is no dtype.
Result<Dtype> FromDtype(uint32_t dtype);

}  // namespace inferscale::capi

#endif  // INFERSCALE_CAPI_CALL_H_
