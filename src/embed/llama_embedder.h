// Text to vector with a sentence-embedding model in a GGUF, on the CPU: BERT (all-MiniLM-L6-v2 and
// its like) with our own kernels, any other through libllama.
#ifndef INFERSCALE_EMBED_LLAMA_EMBEDDER_H_
#define INFERSCALE_EMBED_LLAMA_EMBEDDER_H_

#include <memory>
#include <string>

#include "base/result.h"
#include "embed/embedder.h"

namespace inferscale {

// How BERT is computed. Vectors of one model by all three are near enough to be mixed.
enum class BertArithmetic {
  kFastest,   // our kernels: products of bytes where the processor has them, else of floats
  kFloat,     // our kernels with floats
  kLibllama,  // to compare
};

struct LlamaEmbedderOptions {
  std::string model_path;  // GGUF of a model that pools its tokens to one vector
  int threads = 0;         // 0: as many as the machine has
  BertArithmetic bert = BertArithmetic::kFastest;
};

// Texts are cut at the model's context or 512 tokens, whichever is less. The identity is a hash of
// the model file. Errors of opening name the file: kNotFound; kCorrupt if it is not GGUF or is
// damaged; kUnsupported if the model is of an unknown kind or makes no vector of a text.
Result<std::unique_ptr<Embedder>> OpenLlamaEmbedder(const LlamaEmbedderOptions& options);

}  // namespace inferscale

#endif  // INFERSCALE_EMBED_LLAMA_EMBEDDER_H_
