// OpenAI's embeddings, by the model that facts are found with.
#ifndef INFERSCALE_SERVER_EMBEDDING_API_H_
#define INFERSCALE_SERVER_EMBEDDING_API_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "embed/embedder.h"
#include "server/router.h"

namespace inferscale {

struct EmbeddingRequest {
  std::string model;               // empty if not said
  std::vector<std::string> texts;  // none of them empty
  bool base64 = false;             // vectors as base64 of little-endian floats
};
// kInvalid says what is wrong with the body, without its text; kUnsupported what is not supported.
Result<EmbeddingRequest> ParseEmbeddingRequest(std::string_view body);

// `embedder` must outlive it.
Route EmbeddingRoute(Embedder& embedder);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_EMBEDDING_API_H_
