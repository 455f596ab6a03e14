#include "engine/llama/model_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace inferscale {
namespace {

constexpr size_t kSampleBytes = 4096;

// The values of an array of integers or truth values; empty for another type.
std::vector<int64_t> IntegerArray(const gguf_context* gguf, int64_t key) {
  const size_t count = gguf_get_arr_n(gguf, key);
  const auto read = [&]<typename T>(T) {
    const auto* values = static_cast<const T*>(gguf_get_arr_data(gguf, key));
    return std::vector<int64_t>(values, values + count);
  };
  switch (gguf_get_arr_type(gguf, key)) {
    case GGUF_TYPE_INT32:
      return read(int32_t{});
    case GGUF_TYPE_UINT32:
      return read(uint32_t{});
    case GGUF_TYPE_BOOL:
      return read(int8_t{});
    default:
      return {};
  }
}

}  // namespace

Result<ModelFile> ModelFile::Open(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  if (!file) return Fail(Code::kNotFound, "{}: {}", path, std::strerror(errno));
  if (!file.read(magic, sizeof(magic)) || std::memcmp(magic, GGUF_MAGIC, sizeof(magic)) != 0) {
    return Fail(Code::kInvalid, "{}: not a GGUF file", path);
  }
  ModelFile model;
  model.path_ = path;
  file.seekg(0, std::ios::end);
  model.size_ = static_cast<size_t>(file.tellg());
  model.gguf_.reset(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
  if (!model.gguf_) {
    return Fail(Code::kCorrupt, "{}: the GGUF header is damaged or cut off", path);
  }
  INFERSCALE_TRY(model.CheckExtents());
  return model;
}

Status ModelFile::CheckExtents() const {
  const size_t data = gguf_get_data_offset(gguf_.get());
  for (int64_t i = 0; i < gguf_get_n_tensors(gguf_.get()); ++i) {
    const size_t offset = gguf_get_tensor_offset(gguf_.get(), i);
    const size_t bytes = gguf_get_tensor_size(gguf_.get(), i);
    if (data > size_ || offset > size_ - data || bytes > size_ - data - offset) {
      return Fail(Code::kCorrupt, "{}: the file has {} bytes, but tensor {} ends at {}", path_,
                  size_, gguf_get_tensor_name(gguf_.get(), i), data + offset + bytes);
    }
  }
  return {};
}

std::string ModelFile::String(const char* key) const {
  const int64_t id = gguf_find_key(gguf_.get(), key);
  if (id < 0 || gguf_get_kv_type(gguf_.get(), id) != GGUF_TYPE_STRING) return {};
  return gguf_get_val_str(gguf_.get(), id);
}

bool ModelFile::Has(const char* key) const { return gguf_find_key(gguf_.get(), key) >= 0; }

std::vector<int64_t> ModelFile::Integers(const std::string& key) const {
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  if (id < 0 || gguf_get_kv_type(gguf_.get(), id) != GGUF_TYPE_ARRAY) return {};
  return IntegerArray(gguf_.get(), id);
}

bool ModelFile::Uniform(const char* key) const {
  const std::vector<int64_t> values = Integers(key);
  return std::all_of(values.begin(), values.end(),
                     [&](int64_t value) { return value == values.front(); });
}

Result<std::vector<std::byte>> ModelFile::ReadAt(size_t offset, size_t size) const {
  std::ifstream file(path_, std::ios::binary);
  std::vector<std::byte> bytes(size);
  file.seekg(static_cast<std::streamoff>(offset));
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size))) {
    return Fail(Code::kTransient, "{}: cannot read {} bytes at {}", path_, size, offset);
  }
  return bytes;
}

Result<std::vector<float>> ModelFile::FloatTensor(const char* name) const {
  const int64_t id = gguf_find_tensor(gguf_.get(), name);
  if (id < 0 || gguf_get_tensor_type(gguf_.get(), id) != GGML_TYPE_F32) {
    return std::vector<float>{};
  }
  INFERSCALE_ASSIGN(const auto bytes, ReadAt(gguf_get_data_offset(gguf_.get()) +
                                                 gguf_get_tensor_offset(gguf_.get(), id),
                                             gguf_get_tensor_size(gguf_.get(), id)));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

Result<Hash128> ModelFile::Hash() const {
  std::ifstream file(path_, std::ios::binary);
  Hasher hasher;
  std::vector<char> bytes;
  const auto add = [&](size_t offset, size_t size) {
    bytes.resize(size);
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(bytes.data(), static_cast<std::streamsize>(size));
    hasher.Add(std::string_view(bytes.data(), bytes.size()));
  };
  const size_t data = gguf_get_data_offset(gguf_.get());
  add(0, std::min(data, size_));
  for (int64_t i = 0; i < gguf_get_n_tensors(gguf_.get()); ++i) {
    const size_t begin = data + gguf_get_tensor_offset(gguf_.get(), i);
    const size_t size = gguf_get_tensor_size(gguf_.get(), i);
    const size_t sample = std::min(size, kSampleBytes);
    add(begin, sample);
    add(begin + (size - sample) / 2, sample);
    add(begin + size - sample, sample);
  }
  if (!file) return Fail(Code::kTransient, "{}: cannot be read to its end", path_);
  return hasher.Add(uint64_t{size_}).Digest();
}

}  // namespace inferscale
