// What a loaded model's KV looks like and how its positions are encoded, from its metadata.
#ifndef INFERSCALE_ENGINE_LLAMA_MODEL_INFO_H_
#define INFERSCALE_ENGINE_LLAMA_MODEL_INFO_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/llama/handles.h"
#include "engine/llama/model_file.h"
#include "engine/llama/model_kv.h"

namespace inferscale {

struct LlamaModelTraits {
  std::string name;
  std::string architecture;
  std::string description;
  ModelKv kv;  // its ropes as the metadata says, until the self-test says otherwise
  // Positions at which the RopeSpec holds; LongRoPE changes its factors after the original context.
  uint32_t max_context = 0;
  // Why the model's KV can't be injected though it can be served; empty if it can.
  std::string no_injection;
};

// What only the file tells: llama.cpp's API gives no tensors and no arrays.
struct FileTraits {
  std::vector<float> frequency_factors;  // rope_freqs.weight
  std::vector<float> short_factors;      // rope_factors_short.weight
  std::vector<int64_t> windowed;         // per layer: does it have a sliding window? Or empty
};

// kUnsupported, naming file and architecture, for a model that libllama would abort on or that
// this engine can't serve; asked before the file is loaded.
Status CheckModelFile(const ModelFile& file);

Result<FileTraits> ReadFileTraits(const ModelFile& file);

// `label` stands in messages: the file's path. kUnsupported for recurrent, hybrid, encoder and
// embedding models and for several positions per token (M-RoPE).
Result<LlamaModelTraits> InspectModel(const llama_model* model, const FileTraits& file,
                                      const std::string& label);

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_MODEL_INFO_H_
