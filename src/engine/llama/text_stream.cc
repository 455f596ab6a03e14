#include "engine/llama/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace inferscale {

TextStream::TextStream(std::vector<std::string> stop) : stop_(std::move(stop)) {
  std::erase(stop_, std::string());
}

// Where the longest end of pending_ begins that is the beginning of a stop string.
size_t TextStream::PossibleStop() const {
  size_t begin = pending_.size();
  for (const std::string& stop : stop_) {
    for (size_t length = std::min(stop.size() - 1, pending_.size()); length > 0; --length) {
      if (pending_.compare(pending_.size() - length, length, stop, 0, length) == 0) {
        begin = std::min(begin, pending_.size() - length);
        break;
      }
    }
  }
  return begin;
}

std::string TextStream::Add(std::string_view bytes) {
  if (stopped_) return {};
  pending_ += bytes;
  size_t found = std::string::npos;
  for (const std::string& stop : stop_) found = std::min(found, pending_.find(stop));
  if (found != std::string::npos) {
    stopped_ = true;
    std::string text = ReplaceInvalidUtf8(std::string_view(pending_).substr(0, found));
    pending_.clear();
    return text;
  }
  const std::string_view certain = std::string_view(pending_).substr(0, PossibleStop());
  const size_t whole = CompleteUtf8Prefix(certain);
  std::string text = ReplaceInvalidUtf8(certain.substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string TextStream::Finish() {
  std::string text = ReplaceInvalidUtf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace inferscale
