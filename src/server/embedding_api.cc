#include "server/embedding_api.h"

#include <openssl/evp.h>

#include <boost/json.hpp>
#include <cstring>
#include <span>
#include <utility>

#include "server/errors.h"
#include "server/json_members.h"
#include "server/model_id.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr size_t kMaxTexts = 2048;
// Embedded at a time: in between others have their turn, and a client that is gone is noticed.
constexpr size_t kBatch = 32;

constexpr RouteSchemas kSchemas = {
    .body = R"({"type": "object", "required": ["input"], "properties": {
      "model": {"type": "string"}, "encoding_format": {"enum": ["float", "base64"]},
      "input": {"oneOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1,
        "maxItems": 2048, "items": {"type": "string", "minLength": 1}}]}}})",
    .answer = R"({"type": "object", "required": ["object", "data", "model", "usage"],
      "properties": {"object": {"const": "list"}, "model": {"type": "string"},
        "data": {"type": "array", "items": {"type": "object", "properties": {
          "index": {"type": "integer"}, "object": {"const": "embedding"},
          "embedding": {"type": ["array", "string"]}}}},
        "usage": {"type": "object"}}})"};

Status ReadInput(const Members& root, std::vector<std::string>& texts) {
  const json::value* input = root.Find("input");
  json::array list;
  if (input != nullptr) list = input->is_array() ? input->get_array() : json::array{*input};
  if (list.empty() || list.size() > kMaxTexts) {
    return root.Wrong("input", fmt::format("a text or a list of 1 to {} texts", kMaxTexts));
  }
  for (const json::value& one : list) {
    if (one.is_number() || one.is_array()) {
      return Fail(Code::kUnsupported,
                  "'input' must be text: ids of tokens are those of another model");
    }
    if (!one.is_string() || one.get_string().empty()) {
      return root.Wrong("input", "texts that are not empty");
    }
    texts.emplace_back(one.get_string());
  }
  return {};
}

std::string Base64(std::span<const float> vector) {
  static_assert(std::endian::native == std::endian::little);
  const auto bytes = std::as_bytes(vector);
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // with the zero that it ends in
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(length));
  return text;
}

void Answer(Embedder& embedder, const Call& call, HttpResponder& responder) {
  const auto request = ParseEmbeddingRequest(call.request.body);
  if (!request) return responder.Send(ErrorAnswer(request.error()));
  const std::string model = ModelId(embedder.name());
  if (const Status known = CheckModel(request->model, model); !known) {
    return responder.Send(ErrorAnswer(known.error()));
  }
  json::array data;
  uint64_t tokens = 0;
  const std::span<const std::string> texts = request->texts;
  for (size_t begin = 0; begin < texts.size() && !responder.gone().stop_requested();
       begin += kBatch) {
    const auto batch = texts.subspan(begin, std::min(kBatch, texts.size() - begin));
    const auto vectors = embedder.Embed(batch);
    if (!vectors) return responder.Send(ErrorAnswer(vectors.error()));
    for (const std::string& text : batch) tokens += embedder.CountTokens(text);
    for (const std::vector<float>& vector : *vectors) {
      data.push_back({{"object", "embedding"},
                      {"index", data.size()},
                      {"embedding", request->base64
                                        ? json::value(Base64(vector))
                                        : json::value(json::array(vector.begin(), vector.end()))}});
    }
  }
  if (data.size() < texts.size()) return;  // nobody listens
  responder.Send(200, json::serialize(json::object{
                          {"object", "list"},
                          {"data", std::move(data)},
                          {"model", model},
                          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}}));
}

}  // namespace

Result<EmbeddingRequest> ParseEmbeddingRequest(std::string_view body) {
  INFERSCALE_ASSIGN(const json::object parsed, ParseBody(body));
  const Members root(parsed, "");
  EmbeddingRequest request;
  INFERSCALE_TRY(root.Text("model", request.model));
  std::string format = "float";
  INFERSCALE_TRY(root.Text("encoding_format", format));
  if (format != "float" && format != "base64") {
    return root.Wrong("encoding_format", "float or base64");
  }
  request.base64 = format == "base64";
  if (root.Find("dimensions") != nullptr) {
    return Fail(Code::kUnsupported, "'dimensions' is not supported: vectors can't be shortened");
  }
  INFERSCALE_TRY(ReadInput(root, request.texts));
  return request;
}

Route EmbeddingRoute(Embedder& embedder) {
  return {"POST",
          "/v1/embeddings",
          Access::kRead,
          "Texts as vectors",
          [&embedder](const Call& call, HttpResponder& responder) {
            Answer(embedder, call, responder);
          },
          kSchemas};
}

}  // namespace inferscale
