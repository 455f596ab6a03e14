#include "engine/llama/slot.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "engine/llama/logprobs.h"

namespace inferscale {

Task::Task(GenerateRequest request)
    : prompt(std::move(request.prompt)),
      session(request.session),
      max_tokens(request.sampling.max_tokens),
      first_output(static_cast<uint32_t>(prompt.tokens.size()) - 1),
      sampler(request.sampling),
      logprobs(request.sampling.logprobs),
      text(std::move(request.sampling.stop)) {
  stats.prompt_tokens = static_cast<uint32_t>(prompt.tokens.size());
}

void Task::Complete(FinishReason reason) {
  stats.total_ms = since_start.Ms();
  stats.generated_tokens = static_cast<uint32_t>(generated.size());
  if (score) {
    score->set_value(std::move(logits));
    return;
  }
  if (!text.stopped()) channel->Write(text.Finish(), {});
  channel->Close(GenerationEnd{reason, stats, std::move(generated)});
}

void Task::Fail(const Error& error) {
  if (score) {
    score->set_value(tl::unexpected<Error>(error));
  } else {
    channel->Close(tl::unexpected<Error>(error));
  }
}

Slot::Slot(llama_context* context, llama_seq_id sequence, SequenceKv* kv,
           const Vocabulary* vocabulary, uint32_t capacity)
    : context_(context),
      sequence_(sequence),
      kv_(kv),
      vocabulary_(vocabulary),
      capacity_(capacity) {}

void Slot::Begin(std::unique_ptr<Task> task) {
  task_ = std::move(task);
  task_->stats.queue_ms = task_->since_start.Ms();
  session_ = task_->session;
  next_span_ = 0;
  const std::vector<Token>& tokens = task_->prompt.tokens;
  // The first token with logits must be computed, whatever the cache holds.
  const size_t most = std::min<size_t>(held_.size(), task_->first_output);
  const auto [end, unused] =
      std::mismatch(held_.begin(), held_.begin() + static_cast<ptrdiff_t>(most), tokens.begin());
  auto common = static_cast<size_t>(end - held_.begin());
  if (common < held_.size()) {
    if (!kv_->CanCut(held_.size())) common = 0;
    llama_memory_seq_rm(llama_get_memory(context_), sequence_, static_cast<llama_pos>(common), -1);
    held_.resize(common);
    has_injected_ = has_injected_ && common > 0;
  }
  task_->stats.cached_tokens = static_cast<uint32_t>(common);
}

bool Slot::Inject() {
  const std::vector<PromptSpan>& spans = task_->prompt.spans;
  const auto here = static_cast<uint32_t>(held_.size());
  while (next_span_ < spans.size() && spans[next_span_].first + spans[next_span_].tokens <= here) {
    ++next_span_;
  }
  std::vector<SequenceSpan> run;
  uint32_t end = here;
  while (next_span_ < spans.size() && spans[next_span_].first <= end) {
    const PromptSpan& span = spans[next_span_++];
    const uint32_t held = end - span.first;  // a session may hold the beginning of a span
    run.push_back(
        {span.record, span.record_token + held, span.tokens - held, static_cast<int32_t>(end)});
    end = span.first + span.tokens;
  }
  if (run.empty()) return true;

  const Stopwatch watch;
  const Status status = kv_->Inject(context_, sequence_, here, run);
  task_->stats.inject_ms += watch.Ms();
  if (!status) {
    spdlog::warn("injection of {} tokens failed, computing them: {}", end - here,
                 status.error().message);
    held_.clear();
    has_injected_ = false;
    task_->stats.cached_tokens = 0;
    task_->stats.injected_tokens = 0;
    task_->prompt.spans.clear();
    return false;
  }
  const std::vector<Token>& tokens = task_->prompt.tokens;
  held_.insert(held_.end(), tokens.begin() + here, tokens.begin() + end);
  has_injected_ = true;
  task_->stats.injected_tokens += end - here;
  if (next_span_ == spans.size()) {
    task_->prompt.spans.clear();  // and what keeps the records alive
    next_span_ = 0;
  }
  return true;
}

Token Slot::TokenAt(size_t index) const {
  const std::vector<Token>& prompt = task_->prompt.tokens;
  return index < prompt.size() ? prompt[index] : task_->generated[index - prompt.size()];
}

uint32_t Slot::AddTo(Batch& batch, uint32_t max_tokens, uint32_t max_outputs) {
  const std::vector<PromptSpan>& spans = task_->prompt.spans;
  const size_t end = next_span_ < spans.size()
                         ? spans[next_span_].first
                         : task_->prompt.tokens.size() + task_->generated.size();
  pending_ = 0;
  output_rows_.clear();
  for (size_t i = held_.size(); i < end && pending_ < max_tokens; ++i) {
    const bool output = i >= task_->first_output;
    if (output && output_rows_.size() == max_outputs) break;
    if (output) output_rows_.push_back(static_cast<int32_t>(batch.size()));
    batch.Add(TokenAt(i), static_cast<llama_pos>(i), sequence_, output);
    ++pending_;
  }
  return static_cast<uint32_t>(output_rows_.size());
}

void Slot::TakeOutputs() {
  const size_t prompt_tokens = task_->prompt.tokens.size();
  for (uint32_t i = 0; i < pending_; ++i) {
    if (held_.size() < prompt_tokens) ++task_->stats.prefilled_tokens;
    held_.push_back(TokenAt(held_.size()));
  }
  pending_ = 0;
  const auto rows = std::exchange(output_rows_, {});
  for (const int32_t row : rows) {
    const std::span<const float> logits(llama_get_logits_ith(context_, row), vocabulary_->size());
    if (task_->score) {
      task_->logits.emplace_back(logits.begin(), logits.end());
    } else {
      Emit(logits);
    }
  }
  if (busy() && task_->score && held_.size() == prompt_tokens) Finish(FinishReason::kStop);
}

void Slot::Emit(std::span<const float> logits) {
  const std::optional<Token> chosen = task_->grammar
                                          ? task_->grammar->Choose(logits, task_->sampler)
                                          : task_->sampler.Sample(logits);
  if (!chosen) return Finish(FinishReason::kStop);
  const Token token = *chosen;
  task_->generated.push_back(token);
  if (task_->generated.size() == 1) {
    GenerateStats& stats = task_->stats;
    stats.first_token_ms = task_->since_start.Ms();
    stats.prefill_ms = stats.first_token_ms - stats.queue_ms - stats.inject_ms;
  }
  if (vocabulary_->EndsGeneration(token)) return Finish(FinishReason::kStop);
  task_->channel->Write(task_->text.Add(vocabulary_->Piece(token)), LogprobsOf(logits, token));
  if (task_->text.stopped()) return Finish(FinishReason::kStop);
  if (task_->generated.size() == task_->max_tokens || held_.size() == capacity_) {
    Finish(FinishReason::kLength);
  }
}

// None if nobody asks.
std::vector<PlaceLogprobs> Slot::LogprobsOf(std::span<const float> logits, Token chosen) const {
  if (!task_->logprobs) return {};
  const auto named = [&](const RankedToken& ranked) {
    return TokenLogprob{vocabulary_->Piece(ranked.token, /*special=*/true), ranked.logprob};
  };
  const Logprobs logprobs(logits);
  PlaceLogprobs place{named({chosen, logprobs.Of(chosen)}), {}};
  for (const RankedToken& ranked : logprobs.Top(*task_->logprobs)) {
    place.top.push_back(named(ranked));
  }
  return {std::move(place)};
}

void Slot::Finish(FinishReason reason) {
  // The sequence first: a reader that sees the end may at once ask for the next turn.
  const std::unique_ptr<Task> task = std::move(task_);
  if (session_ == 0) Release();
  task->Complete(reason);
}

void Slot::Fail(const Error& error) {
  const std::unique_ptr<Task> task = std::move(task_);
  Release();
  task->Fail(error);
}

void Slot::EndSession() {
  session_ = 0;
  if (!busy()) Release();
}

llama_seq_id Slot::Exchange(llama_seq_id computed) {
  has_injected_ = false;
  return std::exchange(sequence_, computed);
}

void Slot::Release() {
  llama_memory_seq_rm(llama_get_memory(context_), sequence_, -1, -1);
  held_.clear();
  has_injected_ = false;
  session_ = 0;
}

}  // namespace inferscale
