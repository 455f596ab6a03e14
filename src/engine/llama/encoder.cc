#include "engine/llama/encoder.h"

#include <algorithm>
#include <utility>

namespace inferscale {

EncodeJob::EncodeJob(const EncodeRequest& request) : request_(request) {
  result_.records.resize(request.items.size());
}

Encoder::Encoder(llama_context* context, const ModelKv& kv, uint32_t capacity, uint32_t vocabulary,
                 int threads, const std::atomic<bool>* interrupt)
    : context_(context),
      memory_(llama_get_memory(context)),
      shape_(kv.shape),
      capacity_(capacity),
      vocabulary_(vocabulary),
      kv_(kv, Dtype::kF32, {}, threads),
      interrupt_(interrupt) {
  llama_set_abort_callback(context, &ShouldAbort, this);
}

bool Encoder::ShouldAbort(void* encoder) {
  const auto* self = static_cast<const Encoder*>(encoder);
  if (self->stop_ != nullptr && self->stop_->stop_requested()) return true;
  return !self->was_interrupted_ && self->interrupt_->load(std::memory_order_relaxed);
}

Status Encoder::Check(const EncodeRequest& request) const {
  const auto known = [&](Token token) {
    return token >= 0 && static_cast<uint32_t>(token) < vocabulary_;
  };
  if (!std::all_of(request.prefix.begin(), request.prefix.end(), known)) {
    return Fail(Code::kInvalid, "encode: the prefix has a token outside the vocabulary");
  }
  for (size_t i = 0; i < request.items.size(); ++i) {
    const EncodeItem& item = request.items[i];
    if (item.tokens.empty()) return Fail(Code::kInvalid, "encode: item {} has no tokens", i);
    if (request.prefix.size() + item.tokens.size() > capacity_) {
      return Fail(Code::kInvalid, "encode: prefix and item {} have {} tokens, more than {}", i,
                  request.prefix.size() + item.tokens.size(), capacity_);
    }
    if (!std::all_of(item.tokens.begin(), item.tokens.end(), known)) {
      return Fail(Code::kInvalid, "encode: item {} has a token outside the vocabulary", i);
    }
    for (const EncodeItem::Range& range : item.captures) {
      if (range.tokens == 0 || range.first > item.tokens.size() ||
          range.tokens > item.tokens.size() - range.first) {
        return Fail(Code::kInvalid, "encode: item {} of {} tokens has no range {} + {}", i,
                    item.tokens.size(), range.first, range.tokens);
      }
    }
  }
  return {};
}

Result<bool> Encoder::Step(EncodeJob& job, uint32_t max_tokens) {
  Result<bool> complete = Advance(job, max_tokens);
  if (!complete) {  // sequences of the job's items may be half filled
    llama_memory_clear(memory_, false);
    prefix_.clear();
  }
  return complete;
}

Result<bool> Encoder::Advance(EncodeJob& job, uint32_t max_tokens) {
  if (job.request_.stop.stop_requested()) return Fail(Code::kCancelled, "encode: told to stop");
  INFERSCALE_ASSIGN(const bool prefix_held, StepPrefix(job, max_tokens));
  if (!prefix_held) return false;
  AdmitItems(job);
  if (!job.running_.empty()) INFERSCALE_TRY(StepItems(job, max_tokens));
  return job.running_.empty() && job.next_item_ == job.request_.items.size();
}

EncodeResult Encoder::Take(EncodeJob& job) const {
  job.result_.ms = job.watch_.Ms();
  return std::move(job.result_);
}

// True if sequence 0 holds the job's prefix, so that this step's tokens are still to be spent.
Result<bool> Encoder::StepPrefix(EncodeJob& job, uint32_t max_tokens) {
  const std::vector<Token>& wanted = job.request_.prefix;
  const auto [end, wanted_end] =
      std::mismatch(prefix_.begin(), prefix_.end(), wanted.begin(), wanted.end());
  if (end != prefix_.end()) {
    prefix_.erase(kv_.CanCut(prefix_.size()) ? end : prefix_.begin(), prefix_.end());
    llama_memory_seq_rm(memory_, 0, static_cast<llama_pos>(prefix_.size()), -1);
  }
  if (prefix_.size() == wanted.size()) return true;
  const size_t first = prefix_.size();
  const size_t last = std::min(wanted.size(), first + max_tokens);
  batch_.Clear();
  for (size_t i = first; i < last; ++i) {
    batch_.Add(wanted[i], static_cast<llama_pos>(i), 0, false);
  }
  INFERSCALE_ASSIGN(const bool computed, Decode(job));
  if (computed) prefix_.assign(wanted.begin(), wanted.begin() + static_cast<ptrdiff_t>(last));
  return false;
}

void Encoder::AdmitItems(EncodeJob& job) {
  const std::vector<EncodeItem>& items = job.request_.items;
  size_t cells = prefix_.size();
  uint32_t used = 1;  // bit 0: the prefix
  for (const EncodeJob::Running& run : job.running_) {
    cells += items[run.item].tokens.size();
    used |= 1U << run.sequence;
  }
  while (job.next_item_ < items.size() && job.running_.size() + 1 < kEncodeSequences &&
         cells + items[job.next_item_].tokens.size() <= capacity_) {
    llama_seq_id sequence = 1;
    while ((used >> sequence & 1U) != 0) ++sequence;
    used |= 1U << sequence;
    llama_memory_seq_cp(memory_, 0, sequence, -1, -1);
    EncodeJob::Running run;
    run.item = job.next_item_;
    run.sequence = sequence;
    job.running_.push_back(run);
    for (const EncodeItem::Range& range : items[run.item].captures) {
      job.result_.records[run.item].push_back(
          {range.tokens, std::vector<std::byte>(range.tokens * shape_.TokenBytes())});
    }
    cells += items[job.next_item_++].tokens.size();
  }
}

Status Encoder::StepItems(EncodeJob& job, uint32_t max_tokens) {
  batch_.Clear();
  for (EncodeJob::Running& run : job.running_) {
    const std::vector<Token>& tokens = job.request_.items[run.item].tokens;
    const uint32_t first = run.done;
    run.pending =
        std::min(static_cast<uint32_t>(tokens.size()) - first, max_tokens - batch_.size());
    if (first + run.pending - run.captured > kv_.CapturableTokens()) {
      INFERSCALE_TRY(Capture(job, run));
      run.pending = std::min(run.pending, kv_.CapturableTokens());
    }
    for (uint32_t i = first; i < first + run.pending; ++i) {
      batch_.Add(tokens[i], static_cast<llama_pos>(prefix_.size() + i), run.sequence, false);
    }
  }
  INFERSCALE_ASSIGN(const bool computed, Decode(job));
  if (!computed) return {};
  const auto complete = [&](const EncodeJob::Running& run) {
    return run.done == job.request_.items[run.item].tokens.size();
  };
  for (EncodeJob::Running& run : job.running_) {
    run.done += run.pending;
    if (!complete(run)) continue;
    // The state is read as a whole: without the prefix there is less of it.
    if (!prefix_.empty()) {
      llama_memory_seq_rm(memory_, run.sequence, 0, static_cast<llama_pos>(prefix_.size()));
    }
    INFERSCALE_TRY(Capture(job, run));
    llama_memory_seq_rm(memory_, run.sequence, -1, -1);
  }
  std::erase_if(job.running_, complete);
  return {};
}

// What the item's ranges have of the tokens computed since the last time.
Status Encoder::Capture(EncodeJob& job, EncodeJob::Running& run) {
  std::vector<EncodedRecord>& records = job.result_.records[run.item];
  std::vector<SequenceCapture> captures;
  for (size_t i = 0; i < records.size(); ++i) {
    const EncodeItem::Range& range = job.request_.items[run.item].captures[i];
    const uint32_t first = std::max(range.first, run.captured);
    const uint32_t end = std::min(range.first + range.tokens, run.done);
    if (first >= end) continue;
    captures.push_back({.record = {shape_, range.tokens, records[i].data.data()},
                        .record_token = first - range.first,
                        .tokens = end - first,
                        .position = static_cast<int32_t>(prefix_.size() + first)});
  }
  if (!captures.empty()) INFERSCALE_TRY(kv_.Capture(context_, run.sequence, captures));
  run.captured = run.done;
  return {};
}

Result<bool> Encoder::Decode(EncodeJob& job) {
  stop_ = &job.request_.stop;
  const int code = batch_.Decode(context_);
  stop_ = nullptr;
  was_interrupted_ = code == kDecodeAborted;
  if (was_interrupted_) return false;
  if (code != 0) {
    return Fail(Code::kInternal, "encode: llama_decode of {} tokens returned {}", batch_.size(),
                code);
  }
  job.result_.computed_tokens += batch_.size();
  return true;
}

}  // namespace inferscale
