#include "embed/bert_encoder.h"

#include <algorithm>
#include <new>
#include <utility>

namespace inferscale {

BertEncoder::BertEncoder(std::unique_ptr<BertModel> model, int threads)
    : model_(std::move(model)), threads_count_(static_cast<size_t>(threads)) {
  for (size_t i = 0; i < threads_count_; ++i) threads_.emplace_back([this] { Work(); });
}

BertEncoder::~BertEncoder() {
  MutexLock lock(mutex_);
  stopping_ = true;
  work_.NotifyAll();
}

Result<std::vector<std::vector<float>>> BertEncoder::Run(std::span<const TokenList> texts) {
  Call call{.texts = texts};
  call.vectors.resize(texts.size());
  MutexLock lock(mutex_);
  if (!texts.empty()) waiting_.push_back(&call);
  for (const TokenList& text : texts) waiting_tokens_ += text.size();
  work_.NotifyAll();
  while (call.computed < texts.size()) call.done.Wait(mutex_);
  if (call.failed) return Fail(Code::kExhausted, "no memory to embed {} texts", texts.size());
  return std::move(call.vectors);
}

void BertEncoder::Work() {
  while (true) {
    std::vector<Part> pack;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stopping_) work_.Wait(mutex_);
      if (stopping_) return;
      pack = TakePack();
    }
    std::vector<std::vector<float>> vectors = Compute(pack);
    MutexLock lock(mutex_);
    for (size_t i = 0; i < pack.size(); ++i) {
      Call& call = *pack[i].call;
      call.failed = call.failed || vectors.empty();
      if (!vectors.empty()) call.vectors[pack[i].text] = std::move(vectors[i]);
      if (++call.computed == call.texts.size()) call.done.NotifyOne();
    }
  }
}

std::vector<BertEncoder::Part> BertEncoder::TakePack() {
  const size_t share = std::min(kPackTokens, waiting_tokens_ / threads_count_);
  std::vector<Part> pack;
  for (size_t tokens = 0; !waiting_.empty();) {
    Call* call = waiting_.front();
    const size_t text_tokens = call->texts[call->taken].size();
    tokens += text_tokens;
    if (!pack.empty() && tokens > share) break;
    waiting_tokens_ -= text_tokens;
    pack.push_back({call, call->taken++});
    waiting_.pop_front();
    if (call->taken < call->texts.size()) waiting_.push_back(call);
  }
  return pack;
}

// Empty if there is no memory for it.
std::vector<std::vector<float>> BertEncoder::Compute(std::span<const Part> pack) const {
  try {
    std::vector<TokenList> texts;
    texts.reserve(pack.size());
    for (const Part& part : pack) texts.push_back(part.call->texts[part.text]);
    return model_->Run(texts);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace inferscale
