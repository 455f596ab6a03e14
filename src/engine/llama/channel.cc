#include "engine/llama/channel.h"

namespace inferscale {

void Channel::Write(const std::string& text) {
  if (text.empty()) return;
  MutexLock lock(mutex_);
  text_ += text;
  changed_.NotifyOne();
}

void Channel::Close(Result<GenerationEnd> end) {
  MutexLock lock(mutex_);
  end_ = std::move(end);
  changed_.NotifyOne();
}

Result<std::optional<std::string>> Channel::Read(GenerationEnd& end) {
  MutexLock lock(mutex_);
  while (text_.empty() && !end_) changed_.Wait(mutex_);
  if (!text_.empty()) return std::exchange(text_, {});
  if (!*end_) return tl::unexpected<Error>(end_->error());
  end = **end_;
  return std::nullopt;
}

}  // namespace inferscale
