// A generation between the engine's thread, which writes it, and the one thread that reads it.
#ifndef INFERSCALE_ENGINE_LLAMA_CHANNEL_H_
#define INFERSCALE_ENGINE_LLAMA_CHANNEL_H_

#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/engine.h"

namespace inferscale {

struct GenerationEnd {
  FinishReason reason = FinishReason::kCancelled;
  GenerateStats stats;
  std::vector<Token> tokens;
};

class Channel {
 public:
  // The text may be empty: then the rest waits for the next.
  void Write(const std::string& text, std::vector<PlaceLogprobs> logprobs) EXCLUDES(mutex_);
  // Once, and last.
  void Close(Result<GenerationEnd> end) EXCLUDES(mutex_);
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  // All text that has come, waiting for some, with its logprobs; nullopt after the end, which is
  // then in `end`.
  Result<std::optional<std::string>> Read(GenerationEnd& end, std::vector<PlaceLogprobs>& logprobs)
      EXCLUDES(mutex_);

 private:
  std::atomic<bool> cancelled_{false};
  Mutex mutex_;
  CondVar changed_;
  std::string text_ GUARDED_BY(mutex_);
  std::vector<PlaceLogprobs> logprobs_ GUARDED_BY(mutex_);
  std::optional<Result<GenerationEnd>> end_ GUARDED_BY(mutex_);
};

class ChannelGeneration final : public Generation {
 public:
  ChannelGeneration(std::shared_ptr<Channel> channel, const std::stop_token& stop)
      : channel_(std::move(channel)), on_stop_(stop, CancelChannel{channel_.get()}) {}
  ~ChannelGeneration() override { channel_->Cancel(); }

  Result<std::optional<std::string>> Next() override { return channel_->Read(end_, logprobs_); }
  std::vector<PlaceLogprobs> TakeLogprobs() override { return std::exchange(logprobs_, {}); }
  void Cancel() override { channel_->Cancel(); }
  FinishReason finish_reason() const override { return end_.reason; }
  const GenerateStats& stats() const override { return end_.stats; }
  const std::vector<Token>& tokens() const override { return end_.tokens; }

 private:
  struct CancelChannel {
    Channel* channel;
    void operator()() const { channel->Cancel(); }
  };

  std::shared_ptr<Channel> channel_;
  GenerationEnd end_;
  std::vector<PlaceLogprobs> logprobs_;
  std::stop_callback<CancelChannel> on_stop_;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_CHANNEL_H_
