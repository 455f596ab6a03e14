#include "embed/openai_embedder.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "base/http/client.h"
#include "base/mutex.h"
#include "base/utf8.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr uint32_t kMaxDims = 65536;

Result<std::vector<float>> ParseVector(const json::value& item) {
  const json::array* values = item.if_array();
  if (values == nullptr || values->empty() || values->size() > kMaxDims) {
    return Fail(Code::kCorrupt, "an embedding is not an array of 1 to {} numbers", kMaxDims);
  }
  double squares = 0;
  for (const json::value& value : *values) {
    if (!value.is_number()) return Fail(Code::kCorrupt, "an embedding holds what is no number");
    const auto number = value.to_number<double>();
    squares += number * number;
  }
  if (!std::isfinite(squares) || squares <= 0) {
    return Fail(Code::kCorrupt, "an embedding has no direction");
  }
  const double scale = 1.0 / std::sqrt(squares);
  std::vector<float> vector;
  vector.reserve(values->size());
  for (const json::value& value : *values) {
    vector.push_back(static_cast<float>(value.to_number<double>() * scale));
  }
  return vector;
}

class OpenAiEmbedder final : public Embedder {
 public:
  OpenAiEmbedder(const OpenAiEmbedderOptions& options, HttpUrl url)
      : options_(options),
        client_(std::move(url), {.bearer = options.api_key,
                                 .connect_timeout = options.timeout,
                                 .timeout = options.timeout,
                                 .max_response_bytes = options.max_response_bytes}) {}

  uint32_t dims() const override { return dims_; }
  Hash128 identity() const override {
    return Hasher()
        .Add("openai embedder 1")
        .Add(options_.base_url)
        .Add(options_.model)
        .Add(uint64_t{dims_})
        .Digest();
  }
  std::string name() const override { return options_.model; }

  Status LearnDims() {
    const std::string probe = "hello";
    INFERSCALE_ASSIGN(const auto vectors, Ask(std::span(&probe, 1)));
    dims_ = static_cast<uint32_t>(vectors.front().size());
    return {};
  }

  Result<std::vector<std::vector<float>>> Embed(std::span<const std::string> texts) override {
    std::vector<std::vector<float>> vectors;
    vectors.reserve(texts.size());
    MutexLock lock(mutex_);
    while (!texts.empty()) {
      const auto batch = texts.first(std::min(options_.batch_texts, texts.size()));
      INFERSCALE_ASSIGN(auto answer, Ask(batch));
      if (answer.front().size() != dims_) {
        return Fail(Code::kCorrupt, "embeddings endpoint {}: vectors of {} dimensions, not {}",
                    options_.base_url, answer.front().size(), dims_);
      }
      std::move(answer.begin(), answer.end(), std::back_inserter(vectors));
      texts = texts.subspan(batch.size());
    }
    return vectors;
  }

 private:
  std::string MakeBody(std::span<const std::string> texts) const {
    json::array input;
    for (const std::string& text : texts) input.emplace_back(ReplaceInvalidUtf8(text));
    return json::serialize(json::value{
        {"model", options_.model}, {"input", std::move(input)}, {"encoding_format", "float"}});
  }

  Result<std::vector<std::vector<float>>> Ask(std::span<const std::string> texts) {
    const std::string name = fmt::format("embeddings endpoint {}", options_.base_url);
    auto reply = client_.Call({.path = "/embeddings", .body = MakeBody(texts)});
    if (!reply) return Wrap(std::move(reply).error(), name);
    if (reply->status != 200) {
      const bool may_pass = reply->status >= 500 || reply->status == 429;
      // Its body may quote the texts, so it stays out of the message.
      return Fail(may_pass ? Code::kTransient : Code::kInvalid, "{}: status {} for model {}", name,
                  reply->status, options_.model);
    }
    auto vectors = ParseEmbeddings(reply->body, texts.size());
    if (!vectors) return Wrap(std::move(vectors).error(), name);
    return vectors;
  }

  const OpenAiEmbedderOptions options_;
  HttpClient client_;
  uint32_t dims_ = 0;
  Mutex mutex_;  // calls take turns
};

}  // namespace

Result<std::vector<std::vector<float>>> ParseEmbeddings(std::string_view body, size_t count) {
  boost::system::error_code error;
  json::parse_options options;
  options.max_depth = 8;
  const json::value root = json::parse({body.data(), body.size()}, error, {}, options);
  if (error) return Fail(Code::kCorrupt, "the answer is not JSON: {}", error.message());
  const json::object* object = root.if_object();
  const json::value* data = object != nullptr ? object->if_contains("data") : nullptr;
  const json::array* items = data != nullptr ? data->if_array() : nullptr;
  if (items == nullptr) return Fail(Code::kCorrupt, "the answer has no array `data`");
  if (items->size() != count) {
    return Fail(Code::kCorrupt, "{} vectors for {} texts", items->size(), count);
  }
  std::vector<std::vector<float>> vectors(count);
  for (size_t i = 0; i < count; ++i) {
    const json::object* item = (*items)[i].if_object();
    const json::value* embedding = item != nullptr ? item->if_contains("embedding") : nullptr;
    if (embedding == nullptr) return Fail(Code::kCorrupt, "item {} has no embedding", i);
    // `index` says which text it belongs to; some servers leave it out and keep the order.
    uint64_t index = i;
    if (const json::value* given = item->if_contains("index")) {
      index = given->is_int64() && given->get_int64() >= 0
                  ? static_cast<uint64_t>(given->get_int64())
                  : count;
    }
    if (index >= count || !vectors[index].empty()) {
      return Fail(Code::kCorrupt, "item {} has a wrong index", i);
    }
    INFERSCALE_ASSIGN(vectors[index], ParseVector(*embedding));
  }
  const bool same = std::all_of(vectors.begin(), vectors.end(), [&](const auto& vector) {
    return vector.size() == vectors.front().size();
  });
  if (!same) return Fail(Code::kCorrupt, "the vectors differ in size");
  return vectors;
}

Result<std::unique_ptr<Embedder>> OpenOpenAiEmbedder(const OpenAiEmbedderOptions& options) {
  auto url = ParseHttpUrl(options.base_url);
  if (!url) return Wrap(std::move(url).error(), "embeddings endpoint");
  if (options.batch_texts == 0) return Fail(Code::kInvalid, "embeddings: batch of no texts");
  auto embedder = std::make_unique<OpenAiEmbedder>(options, std::move(*url));
  INFERSCALE_TRY(embedder->LearnDims());
  return embedder;
}

}  // namespace inferscale
