// A GGUF file, looked at before and besides libllama: what libllama's API does not tell, and what
// it would answer with abort().
#ifndef INFERSCALE_ENGINE_LLAMA_MODEL_FILE_H_
#define INFERSCALE_ENGINE_LLAMA_MODEL_FILE_H_

#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "engine/llama/handles.h"

namespace inferscale {

class ModelFile {
 public:
  // kNotFound if the file can't be opened, kInvalid if it is not GGUF, kCorrupt if its header is
  // damaged or its tensors reach past its end (an unfinished download). Messages name the file.
  static Result<ModelFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string architecture() const { return String("general.architecture"); }
  std::string String(const char* key) const;  // empty if absent or of another type
  bool Has(const char* key) const;
  // An array of integers or truth values; empty if absent or of another type.
  std::vector<int64_t> Integers(const std::string& key) const;
  // Do all elements of an integer array have the same value? True for scalars and absent keys.
  bool Uniform(const char* key) const;
  // A tensor of f32, or empty if there is none of that name and type.
  Result<std::vector<float>> FloatTensor(const char* name) const;

  // Of the whole header (metadata, tokenizer, tensor list) and of the first, middle and last 4 KiB
  // of every tensor: enough to tell models apart, and fast for files of any size.
  Result<Hash128> Hash() const;

 private:
  Status CheckExtents() const;
  Result<std::vector<std::byte>> ReadAt(size_t offset, size_t size) const;

  std::string path_;
  size_t size_ = 0;
  GgufPtr gguf_;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_MODEL_FILE_H_
