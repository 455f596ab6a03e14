#include "engine/llama/channel.h"

#include <algorithm>
#include <iterator>

namespace inferscale {

namespace {

void Append(std::vector<PlaceLogprobs> more, std::vector<PlaceLogprobs>& all) {
  std::move(more.begin(), more.end(), std::back_inserter(all));
}

}  // namespace

void Channel::Write(const std::string& text, std::vector<PlaceLogprobs> logprobs) {
  if (text.empty() && logprobs.empty()) return;
  MutexLock lock(mutex_);
  text_ += text;
  Append(std::move(logprobs), logprobs_);
  changed_.NotifyOne();
}

void Channel::Close(Result<GenerationEnd> end) {
  MutexLock lock(mutex_);
  end_ = std::move(end);
  changed_.NotifyOne();
}

Result<std::optional<std::string>> Channel::Read(GenerationEnd& end,
                                                 std::vector<PlaceLogprobs>& logprobs) {
  MutexLock lock(mutex_);
  while (text_.empty() && !end_) changed_.Wait(mutex_);
  Append(std::exchange(logprobs_, {}), logprobs);
  if (!text_.empty()) return std::exchange(text_, {});
  if (!*end_) return tl::unexpected<Error>(end_->error());
  end = **end_;
  return std::nullopt;
}

}  // namespace inferscale
