#include "embed/openai_embedder.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "base/mutex.h"
#include "base/utf8.h"

namespace inferscale {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace json = boost::json;

constexpr uint32_t kMaxDims = 65536;

struct Url {
  std::string host;
  std::string port = "80";
  std::string path;  // without a slash at its end
};

Result<Url> ParseUrl(const std::string& text) {
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    return Fail(Code::kUnsupported, "embeddings endpoint {}: https is not supported, use a proxy",
                text);
  }
  constexpr std::string_view kScheme = "http://";
  if (!rest.starts_with(kScheme)) {
    return Fail(Code::kInvalid, "embeddings endpoint {}: must begin with http://", text);
  }
  rest.remove_prefix(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  Url url;
  url.path = rest.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();

  std::string_view authority = rest.substr(0, slash);
  const size_t bracket = authority.rfind(']');  // of an IPv6 address
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    url.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  url.host = authority;
  const bool digits =
      std::all_of(url.port.begin(), url.port.end(), [](char c) { return c >= '0' && c <= '9'; });
  const bool clean = std::all_of(text.begin(), text.end(), [](char c) { return c > ' '; });
  if (url.host.empty() || url.port.empty() || url.port.size() > 5 || !digits || !clean) {
    return Fail(Code::kInvalid, "embeddings endpoint {}: not a URL", text);
  }
  return url;
}

using Request = http::request<http::string_body>;

using Response = http::response<http::string_body>;

// One request and its response over a connection of its own. Callbacks, since clang 14 can't
// compile coroutines with its undefined-behaviour sanitizer.
class Exchange {
 public:
  Exchange(asio::io_context& context, const Url& url, const Request& request,
           size_t max_response_bytes)
      : resolver_(context), stream_(context), request_(request) {
    parser_.body_limit(max_response_bytes);
    resolver_.async_resolve(url.host, url.port, [this](beast::error_code error, auto endpoints) {
      if (!Failed(error)) Connect(endpoints);
    });
  }

  bool done() const { return done_; }
  beast::error_code error() const { return error_; }
  Response TakeResponse() { return parser_.release(); }

 private:
  void Connect(const asio::ip::tcp::resolver::results_type& endpoints) {
    stream_.async_connect(endpoints, [this](beast::error_code error, const auto&) {
      if (!Failed(error)) Write();
    });
  }
  void Write() {
    http::async_write(stream_, request_, [this](beast::error_code error, size_t) {
      if (!Failed(error)) Read();
    });
  }
  void Read() {
    http::async_read(stream_, buffer_, parser_, [this](beast::error_code error, size_t) {
      if (!Failed(error)) done_ = true;
    });
  }
  bool Failed(beast::error_code error) {
    error_ = error;
    return error.failed();
  }

  asio::ip::tcp::resolver resolver_;
  beast::tcp_stream stream_;
  const Request& request_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  beast::error_code error_;
  bool done_ = false;
};

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
  OpenAiEmbedder(OpenAiEmbedderOptions options, Url url)
      : options_(std::move(options)), url_(std::move(url)) {}

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
  Request MakeRequest(std::span<const std::string> texts) const {
    json::array input;
    for (const std::string& text : texts) input.emplace_back(ReplaceInvalidUtf8(text));
    Request request(http::verb::post, url_.path + "/embeddings", 11);
    request.set(http::field::host, url_.host + ":" + url_.port);
    request.set(http::field::content_type, "application/json");
    request.set(http::field::accept, "application/json");
    request.set(http::field::connection, "close");
    if (!options_.api_key.empty()) {
      request.set(http::field::authorization, "Bearer " + options_.api_key);
    }
    request.body() = json::serialize(json::value{
        {"model", options_.model}, {"input", std::move(input)}, {"encoding_format", "float"}});
    request.prepare_payload();
    return request;
  }

  Result<std::vector<std::vector<float>>> Ask(std::span<const std::string> texts) const {
    const Request request = MakeRequest(texts);
    asio::io_context context(1);
    Exchange exchange(context, url_, request, options_.max_response_bytes);
    context.run_for(options_.timeout);
    if (const beast::error_code error = exchange.error()) {
      const bool too_long = error == http::error::body_limit;
      return Fail(too_long ? Code::kCorrupt : Code::kTransient, "embeddings endpoint {}: {}",
                  options_.base_url, error.message());
    }
    if (!exchange.done()) {
      return Fail(Code::kTransient, "embeddings endpoint {}: no answer within {} ms",
                  options_.base_url, options_.timeout.count());
    }
    const Response response = exchange.TakeResponse();
    const unsigned status = response.result_int();
    if (status != 200) {
      const bool may_pass = status >= 500 || status == 429;
      // Its body may quote the texts, so it stays out of the message.
      return Fail(may_pass ? Code::kTransient : Code::kInvalid,
                  "embeddings endpoint {}: status {} for model {}", options_.base_url, status,
                  options_.model);
    }
    auto vectors = ParseEmbeddings(response.body(), texts.size());
    if (!vectors) {
      return Wrap(vectors.error(), fmt::format("embeddings endpoint {}", options_.base_url));
    }
    return vectors;
  }

  const OpenAiEmbedderOptions options_;
  const Url url_;
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
  INFERSCALE_ASSIGN(Url url, ParseUrl(options.base_url));
  if (options.batch_texts == 0) return Fail(Code::kInvalid, "embeddings: batch of no texts");
  auto embedder = std::make_unique<OpenAiEmbedder>(options, std::move(url));
  INFERSCALE_TRY(embedder->LearnDims());
  return embedder;
}

}  // namespace inferscale
