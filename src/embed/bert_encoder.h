// A BERT model for many callers: their texts are computed together. A pass over the weights takes
// as long for a short text as for several, since the weights come from memory.
#ifndef INFERSCALE_EMBED_BERT_ENCODER_H_
#define INFERSCALE_EMBED_BERT_ENCODER_H_

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "embed/bert_model.h"
#include "embed/text_encoder.h"

namespace inferscale {

class BertEncoder final : public TextEncoder {
 public:
  BertEncoder(std::unique_ptr<BertModel> model, int threads);
  ~BertEncoder() override;  // no call is running

  uint32_t dims() const override { return model_->dims(); }
  size_t max_tokens() const override { return model_->max_tokens(); }
  // kExhausted if memory is.
  Result<std::vector<std::vector<float>>> Run(std::span<const TokenList> texts) override
      EXCLUDES(mutex_);

 private:
  struct Call {
    std::span<const TokenList> texts;
    size_t taken = 0;
    size_t computed = 0;
    bool failed = false;
    std::vector<std::vector<float>> vectors{};
    CondVar done{};
  };
  struct Part {
    Call* call = nullptr;
    size_t text = 0;
  };

  void Work() EXCLUDES(mutex_);
  // Of the waiting callers one text each, and again, until it is a thread's share.
  std::vector<Part> TakePack() REQUIRES(mutex_);
  std::vector<std::vector<float>> Compute(std::span<const Part> pack) const;

  const std::unique_ptr<BertModel> model_;
  const size_t threads_count_;
  Mutex mutex_;
  CondVar work_;
  std::deque<Call*> waiting_ GUARDED_BY(mutex_);  // with texts that nobody has taken
  size_t waiting_tokens_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;  // last: they use the rest
};

}  // namespace inferscale

#endif  // INFERSCALE_EMBED_BERT_ENCODER_H_
