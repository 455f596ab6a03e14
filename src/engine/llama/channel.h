// A generation between the engine's thread, which writes it, and the one thread that reads it.
#ifndef INFERSCALE_ENGINE_LLAMA_CHANNEL_H_
#define INFERSCALE_ENGINE_LLAMA_CHANNEL_H_

#include <atomic>
#include <memory>
#include <optional>
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
  void Write(const std::string& text) EXCLUDES(mutex_);
  // Once, and last.
  void Close(Result<GenerationEnd> end) EXCLUDES(mutex_);
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  // All text that has come, waiting for some; nullopt after the end, which is then in `end`.
  Result<std::optional<std::string>> Read(GenerationEnd& end) EXCLUDES(mutex_);

 private:
  std::atomic<bool> cancelled_{false};
  Mutex mutex_;
  CondVar changed_;
  std::string text_ GUARDED_BY(mutex_);
  std::optional<Result<GenerationEnd>> end_ GUARDED_BY(mutex_);
};

class ChannelGeneration final : public Generation {
 public:
  explicit ChannelGeneration(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}
  ~ChannelGeneration() override { channel_->Cancel(); }

  Result<std::optional<std::string>> Next() override { return channel_->Read(end_); }
  void Cancel() override { channel_->Cancel(); }
  FinishReason finish_reason() const override { return end_.reason; }
  const GenerateStats& stats() const override { return end_.stats; }
  const std::vector<Token>& tokens() const override { return end_.tokens; }

 private:
  std::shared_ptr<Channel> channel_;
  GenerationEnd end_;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_CHANNEL_H_
