#include "engine/vllm/generation.h"

#include <algorithm>
#include <span>
#include <utility>

namespace inferscale {

namespace {

using Range = VllmRequest::Range;

// From the prompt's start without a gap: what a connector can take by itself.
uint32_t PlannedTokens(std::span<const Range> planned) {
  uint32_t end = 0;
  for (const Range& range : planned) {
    if (range.first != end) break;
    end = range.end;
  }
  return end;
}

// Of the first `taken` tokens of the prompt, which were not computed.
uint32_t InjectedTokens(std::span<const Range> planned, uint32_t taken) {
  uint32_t tokens = 0;
  for (const Range& range : planned) {
    if (range.first < taken) tokens += std::min(range.end, taken) - range.first;
  }
  return tokens;
}

}  // namespace

VllmGeneration::VllmGeneration(VllmServers& servers, const Tokenizer& tokenizer,
                               VllmRequest request)
    : servers_(servers), tokenizer_(tokenizer), request_(std::move(request)) {
  stats_.prompt_tokens = request_.prompt_tokens;
  stats_.injected_tokens = PlannedTokens(request_.planned);
  stats_.injected_is_planned = stats_.injected_tokens > 0;
}

Status VllmGeneration::Send() {
  while (true) {
    INFERSCALE_ASSIGN(server_, servers_.Pick(request_.session));
    ++attempts_;
    auto stream = server_->client().Open({.method = "POST",
                                          .path = "/v1/completions",
                                          .body = request_.body,
                                          .traceparent = request_.traceparent,
                                          .timeout = request_.silence});
    if (stream) {
      stream_ = std::move(*stream);
      events_ = SseParser();
      refused_ = false;
      return {};
    }
    server_->Report(VllmServer::Outcome::kGone);
    if (attempts_ >= kVllmAttempts) return Wrap(std::move(stream).error(), server_->url());
  }
}

// Nothing of the answer has come yet: another server may give it, and at last one without KV.
Status VllmGeneration::Retry(const Error& error) {
  stream_ = nullptr;
  const bool may_help = error.code == Code::kTransient ||
                        (error.code == Code::kInvalid && !request_.plain_body.empty());
  if (begun_ || !may_help || attempts_ >= kVllmAttempts) return tl::unexpected(error);
  if (!request_.plain_body.empty() &&
      (error.code == Code::kInvalid || attempts_ + 1 == kVllmAttempts)) {
    request_.body = std::exchange(request_.plain_body, {});
    request_.planned.clear();
    stats_.injected_tokens = 0;
    stats_.injected_is_planned = false;
  }
  return Send();
}

Result<std::optional<std::string>> VllmGeneration::NextEvent() {
  while (true) {
    INFERSCALE_ASSIGN(auto event, events_.Next());
    if (event) return event;
    INFERSCALE_ASSIGN(const auto bytes, stream_->Read());
    if (!bytes) return std::nullopt;
    events_.Add(*bytes);
  }
}

Result<std::string> VllmGeneration::ReadPart() {
  const std::stop_callback cancel(request_.stop, [stream = stream_.get()] { stream->Cancel(); });
  INFERSCALE_ASSIGN(const unsigned status, stream_->Status());
  refused_ = status != 200;
  if (refused_) {
    return Fail(status >= 500 || status == 429 ? Code::kTransient : Code::kInvalid,
                "/v1/completions: status {}", status);
  }
  while (true) {
    INFERSCALE_ASSIGN(const auto event, NextEvent());
    if (!event) {
      if (finish_known_) break;
      return Fail(Code::kTransient, "the answer broke off");
    }
    if (*event == "[DONE]") break;
    INFERSCALE_ASSIGN(CompletionPart part, ParseCompletion(*event));
    if (part.finish) {
      finish_ = *part.finish;
      finish_known_ = true;
    }
    if (part.usage) Take(*part.usage);
    if (part.text.empty() && part.tokens.empty()) continue;
    if (!std::exchange(begun_, true)) {
      server_->Report(VllmServer::Outcome::kAnswered);
      stats_.first_token_ms = stats_.prefill_ms = watch_.Ms();
    }
    ids_missing_ = ids_missing_ || part.tokens.empty();
    tokens_.insert(tokens_.end(), part.tokens.begin(), part.tokens.end());
    for (PlaceLogprobs& place : part.logprobs) {
      place.top.resize(std::min<size_t>(place.top.size(), request_.top_logprobs));
      logprobs_.push_back(std::move(place));
    }
    text_ += part.text;
    if (!part.text.empty()) return std::move(part.text);
  }
  return std::string();
}

void VllmGeneration::Take(const VllmUsage& usage) {
  if (usage.prompt > 0) stats_.prompt_tokens = usage.prompt;
  stats_.generated_tokens = usage.completion;
  if (!usage.cached) return;
  // What came from the connector and what vLLM had itself is one number, of the prompt's beginning.
  stats_.injected_tokens = InjectedTokens(request_.planned, *usage.cached);
  stats_.cached_tokens = *usage.cached - stats_.injected_tokens;
  stats_.injected_is_planned = false;
}

Status VllmGeneration::Finish() {
  done_ = true;
  stream_ = nullptr;
  stats_.total_ms = watch_.Ms();
  const uint32_t taken = stats_.injected_tokens + stats_.cached_tokens;
  stats_.prefilled_tokens = stats_.prompt_tokens - std::min(stats_.prompt_tokens, taken);
  if (ids_missing_ && !text_.empty()) {
    INFERSCALE_ASSIGN(tokens_, tokenizer_.Text(text_, {}));
  }
  if (stats_.generated_tokens == 0) stats_.generated_tokens = static_cast<uint32_t>(tokens_.size());
  return {};
}

Result<std::optional<std::string>> VllmGeneration::Next() {
  while (!done_) {
    auto part = ReadPart();
    if (!part) {
      const Error& error = part.error();
      if (error.code == Code::kCancelled) {
        Cancel();
        break;
      }
      if (error.code == Code::kTransient || error.code == Code::kCorrupt) {
        server_->Report(refused_ ? VllmServer::Outcome::kErred : VllmServer::Outcome::kGone);
      }
      if (const Status again = Retry(error); !again) {
        done_ = true;
        const bool named = again.error().message.find(server_->url()) != std::string::npos;
        return named ? tl::unexpected(again.error()) : Wrap(again.error(), server_->url());
      }
      continue;
    }
    if (!part->empty()) return std::move(*part);
    INFERSCALE_TRY(Finish());
  }
  return std::nullopt;
}

void VllmGeneration::Cancel() {
  if (done_) return;
  stream_ = nullptr;  // closes the connection, which ends the request in the server
  finish_ = FinishReason::kCancelled;
  if (const Status finished = Finish(); !finished) tokens_.clear();
}

}  // namespace inferscale
