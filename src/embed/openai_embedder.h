// Text to vector through an OpenAI-compatible endpoint: POST {base_url}/embeddings.
#ifndef INFERSCALE_EMBED_OPENAI_EMBEDDER_H_
#define INFERSCALE_EMBED_OPENAI_EMBEDDER_H_

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "embed/embedder.h"

namespace inferscale {

struct OpenAiEmbedderOptions {
  std::string base_url;  // "http://host:port/v1"; https needs a proxy in between
  std::string model;
  std::string api_key;                        // sent as a bearer token if not empty
  std::chrono::milliseconds timeout{30'000};  // of one request, from connecting to the last byte
  size_t batch_texts = 64;                    // at most so many texts in one request
  size_t max_response_bytes = size_t{64} << 20;
};

// Asks for one vector to learn the number of dimensions, so the server must be up. The identity is
// a hash of URL, model and dimensions. Errors name the URL, and the status if there is one:
// kInvalid for a bad URL or a request that the server refuses (4xx), kUnsupported for https,
// kTransient for timeouts, connections, 429 and 5xx, kCorrupt for an answer that makes no sense.
Result<std::unique_ptr<Embedder>> OpenOpenAiEmbedder(const OpenAiEmbedderOptions& options);

// The vectors of an endpoint's answer, by index, each of length 1: exactly `count` of them, all of
// the same size. kCorrupt says what is wrong.
Result<std::vector<std::vector<float>>> ParseEmbeddings(std::string_view body, size_t count);

}  // namespace inferscale

#endif  // INFERSCALE_EMBED_OPENAI_EMBEDDER_H_
