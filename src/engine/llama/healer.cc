#include "engine/llama/healer.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace inferscale {

Healer::Healer(llama_context* context, llama_seq_id spare, const SequenceKv* kv,
               uint32_t step_tokens, const std::atomic<bool>* interrupt)
    : context_(context), spare_(spare), kv_(kv), step_tokens_(step_tokens), interrupt_(interrupt) {}

bool Healer::ShouldAbort(void* healer) {
  return static_cast<const Healer*>(healer)->interrupt_->load(std::memory_order_relaxed);
}

void Healer::CutBack(size_t begun) {
  if (!kv_->CanCut(begun)) return Clear();
  llama_memory_seq_rm(llama_get_memory(context_), spare_, static_cast<llama_pos>(computed_.size()),
                      -1);
}

void Healer::Clear() {
  llama_memory_seq_rm(llama_get_memory(context_), spare_, -1, -1);
  computed_.clear();
}

void Healer::Step(Slot& slot) {
  const std::vector<Token>& held = slot.held();
  const bool goes_on = slot.session() == session_ && computed_.size() <= held.size() &&
                       std::equal(computed_.begin(), computed_.end(), held.begin());
  if (!goes_on) Clear();
  session_ = slot.session();

  const size_t end = std::min(held.size(), computed_.size() + step_tokens_);
  batch_.Clear();
  for (size_t i = computed_.size(); i < end; ++i) {
    batch_.Add(held[i], static_cast<llama_pos>(i), spare_, /*output=*/false);
  }
  llama_set_abort_callback(context_, &ShouldAbort, this);
  const int code = batch_.empty() ? 0 : batch_.Decode(context_);
  llama_set_abort_callback(context_, nullptr, nullptr);
  if (code == kDecodeAborted) return CutBack(end);
  if (code != 0) {
    Clear();
    given_up_ = session_;
    spdlog::warn("a session keeps its injected KV: llama_decode of {} tokens returned {}",
                 batch_.size(), code);
    return;
  }
  computed_.assign(held.begin(), held.begin() + static_cast<ptrdiff_t>(end));
  if (computed_.size() < held.size()) return;
  spare_ = slot.Exchange(spare_);
  Clear();
}

}  // namespace inferscale
