// Models that compute nothing but can be checked: a token's KV row holds its id, so that KV which
// stands at a wrong token is seen at once; an answer is a hash of the prompt's tokens, so that two
// answers are equal iff the model read the same.
#ifndef INFERSCALE_TESTS_APP_TOY_MODELS_H_
#define INFERSCALE_TESTS_APP_TOY_MODELS_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/models.h"
#include "ops/element.h"

namespace inferscale {

constexpr Token kToyEnd = 257;
constexpr Token kToyBlock = 258;

// One token a byte; 256 and up are control tokens.
class ToyFormat final : public PromptFormat {
 public:
  Result<std::vector<Token>> Header(std::string_view system) const override {
    std::vector<Token> ids = {256};
    Append(ids, system);
    return ids;
  }
  Result<std::vector<Token>> Text(std::string_view text) const override {
    std::vector<Token> ids;
    Append(ids, text);
    return ids;
  }
  Result<std::vector<Token>> Plain(std::string_view text) const override { return Text(text); }
  Result<std::vector<Token>> Tail(std::string_view question) const override {
    std::vector<Token> ids = {kToyEnd};
    Append(ids, question);
    ids.push_back(kToyEnd);
    return ids;
  }
  std::vector<Token> MemoryBlock(bool ended) const override {
    return ended ? std::vector<Token>{kToyBlock} : std::vector<Token>{kToyEnd, kToyBlock};
  }
  Result<std::vector<Token>> NextTail(bool ended, std::string_view question) const override {
    std::vector<Token> ids = ended ? std::vector<Token>{} : std::vector<Token>{kToyEnd};
    Append(ids, question);
    ids.push_back(kToyEnd);
    return ids;
  }
  Hash128 Hash() const override { return HashBytes(AsBytes("toy")); }

 private:
  static void Append(std::vector<Token>& ids, std::string_view text) {
    for (char c : text) ids.push_back(static_cast<uint8_t>(c));
  }
};

// What a toy engine has seen, shared with the test.
struct ToyLog {
  std::atomic<uint64_t> wrong_rows{0};  // injected rows of another token than the prompt's
  std::atomic<uint64_t> encoded_tokens{0};
  std::atomic<bool> fail_encode{false};
  std::function<void(const std::stop_token&)> on_encode;  // at every Encode, with its token
  std::vector<std::string> answers;  // of the next Starts, in order; then hashes again
  std::mutex mutex;
  std::vector<uint64_t> seeds;     // of all Starts
  std::vector<uint64_t> sessions;  // of all Starts
  std::string last_trace;          // of the last Start
  std::vector<Token> last_prompt;  // of the last Start; read by tests with one thread
};

class ToyGeneration final : public Generation {
 public:
  ToyGeneration(std::string text, GenerateStats stats, std::optional<uint32_t> logprobs)
      : text_(std::move(text)), stats_(stats), logprobs_(logprobs) {
    stats_.generated_tokens = static_cast<uint32_t>(text_.size());
    for (char c : text_) tokens_.push_back(static_cast<uint8_t>(c));
    tokens_.push_back(kToyEnd);
  }
  Result<std::optional<std::string>> Next() override {
    if (done_) return std::nullopt;
    done_ = true;
    return text_;
  }
  void Cancel() override { done_ = true; }
  // Each byte is certain to one half, and else it is "~".
  std::vector<PlaceLogprobs> TakeLogprobs() override {
    std::vector<PlaceLogprobs> places;
    if (!logprobs_ || !done_) return places;
    for (const char c : text_) {
      PlaceLogprobs place;
      place.chosen = {std::string(1, c), -0.5F};
      place.top = {place.chosen, {"~", -1.5F}};
      place.top.resize(std::min<size_t>(*logprobs_, 2));
      places.push_back(std::move(place));
    }
    logprobs_.reset();
    return places;
  }
  FinishReason finish_reason() const override { return FinishReason::kStop; }
  const GenerateStats& stats() const override { return stats_; }
  const std::vector<Token>& tokens() const override { return tokens_; }

 private:
  std::string text_;
  std::vector<Token> tokens_;
  GenerateStats stats_;
  std::optional<uint32_t> logprobs_;
  bool done_ = false;
};

class ToyEngine : public Engine {
 public:
  ToyEngine(std::string weights, std::shared_ptr<ToyLog> log) : log_(std::move(log)) {
    info_.name = "toy";
    info_.shape = {2, 1, 8, 8, Dtype::kF16};
    info_.fingerprint = HashBytes(AsBytes(weights));
    info_.context_tokens = 4096;
    info_.encode_tokens = 4096;
    info_.vocabulary = 512;
    info_.injection = true;
    info_.self_test = {true, "toy", {}};
  }

  const ModelInfo& info() const override { return info_; }
  const PromptFormat& format() const override { return format_; }
  std::string Detokenize(std::span<const Token> tokens) const override {
    std::string text;
    for (Token token : tokens) {
      if (token < 256) text += static_cast<char>(token);
    }
    return text;
  }

  Result<std::unique_ptr<Generation>> Start(GenerateRequest request) override {
    const Prompt& prompt = request.prompt;
    GenerateStats stats;
    stats.prompt_tokens = static_cast<uint32_t>(prompt.tokens.size());
    for (const PromptSpan& span : prompt.spans) {
      for (uint32_t t = 0; t < span.tokens; ++t) {
        if (RowToken(span.record, span.record_token + t) != prompt.tokens[span.first + t]) {
          ++log_->wrong_rows;
        }
      }
      stats.injected_tokens += span.tokens;
    }
    stats.prefilled_tokens = stats.prompt_tokens - stats.injected_tokens;
    std::string answer = HashBytes(std::as_bytes(std::span(prompt.tokens))).Hex();
    {
      const std::lock_guard lock(log_->mutex);
      log_->last_prompt = prompt.tokens;
      log_->last_trace = request.traceparent;
      log_->seeds.push_back(request.sampling.seed);
      log_->sessions.push_back(request.session);
      if (!log_->answers.empty()) {
        answer = std::move(log_->answers.front());
        log_->answers.erase(log_->answers.begin());
      }
    }
    return std::make_unique<ToyGeneration>(std::move(answer), stats, request.sampling.logprobs);
  }

  Result<EncodeResult> Encode(const EncodeRequest& request) override {
    if (log_->fail_encode) return Fail(Code::kTransient, "told to fail");
    if (log_->on_encode) log_->on_encode(request.stop);
    if (request.stop.stop_requested()) return Fail(Code::kCancelled, "told to stop");
    EncodeResult result;
    for (const EncodeItem& item : request.items) {
      std::vector<EncodedRecord> records;
      for (const EncodeItem::Range& range : item.captures) {
        EncodedRecord record{range.tokens, {}};
        record.data.resize(range.tokens * info_.shape.TokenBytes());
        const MutableFactKvView view{info_.shape, range.tokens, record.data.data()};
        for (uint32_t layer = 0; layer < info_.shape.layers; ++layer) {
          for (uint32_t t = 0; t < range.tokens; ++t) {
            const Token token = item.tokens[range.first + t];
            std::memcpy(view.K(layer) + t * info_.shape.KRowBytes(), &token, sizeof(token));
            std::memcpy(view.V(layer) + t * info_.shape.VRowBytes(), &token, sizeof(token));
          }
        }
        log_->encoded_tokens += range.tokens;
        records.push_back(std::move(record));
      }
      result.computed_tokens += item.tokens.size();
      result.records.push_back(std::move(records));
    }
    return result;
  }

  Result<std::vector<std::vector<float>>> Score(const Prompt&, std::span<const Token>,
                                                uint64_t) override {
    return Fail(Code::kUnsupported, "a toy has no logits");
  }
  void EndSession(uint64_t) override {}

 private:
  // The id in a row, the same in all layers, K and V; -1 if they differ. Read as f16 it is a small
  // multiple of 2^-24 and each value's largest number, so a codec keeps it.
  static Token RowToken(const FactKvView& record, uint32_t t) {
    Token first = -1;
    if (IsQuantised(record.shape.dtype)) {
      if (record.key_scales == nullptr) return -1;
      return static_cast<Token>(std::lround(0x1p24 * ReadV(record, 0, t, 0, 0)));
    }
    for (uint32_t layer = 0; layer < record.shape.layers; ++layer) {
      for (const std::byte* row : {record.K(layer) + t * record.shape.KRowBytes(),
                                   record.V(layer) + t * record.shape.VRowBytes()}) {
        Token token = 0;
        std::memcpy(&token, row, sizeof(token));
        if (first == -1) first = token;
        if (token != first) return -1;
      }
    }
    return first;
  }

  ModelInfo info_;
  ToyFormat format_;
  std::shared_ptr<ToyLog> log_;
};

// Words to directions: texts that share words are near.
class ToyEmbedder final : public Embedder {
 public:
  uint32_t dims() const override { return 32; }
  Hash128 identity() const override { return HashBytes(AsBytes("toy embedder")); }
  std::string name() const override { return "toy"; }
  Result<std::vector<std::vector<float>>> Embed(std::span<const std::string> texts) override {
    std::vector<std::vector<float>> vectors;
    for (const std::string& text : texts) {
      std::vector<float> v(dims(), 0.001F);
      std::string word;
      for (const char c : text + " ") {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
          word += c;
        } else if (!word.empty()) {
          v[HashBytes(AsBytes(word)).low % dims()] += 1.0F;
          word.clear();
        }
      }
      float norm = 0;
      for (float x : v) norm += x * x;
      for (float& x : v) x /= std::sqrt(norm);
      vectors.push_back(std::move(v));
    }
    return vectors;
  }
};

inline Models ToyModels(const std::shared_ptr<ToyLog>& log, const std::string& weights = "toy v1") {
  return {std::make_unique<ToyEmbedder>(), std::make_unique<ToyEngine>(weights, log)};
}

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_APP_TOY_MODELS_H_
