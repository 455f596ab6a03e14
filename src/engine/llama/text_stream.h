// From the bytes of tokens to text that can be shown: whole characters, and nothing of a stop
// string.
#ifndef INFERSCALE_ENGINE_LLAMA_TEXT_STREAM_H_
#define INFERSCALE_ENGINE_LLAMA_TEXT_STREAM_H_

#include <string>
#include <string_view>
#include <vector>

namespace inferscale {

class TextStream {
 public:
  // Empty strings in `stop` are ignored.
  explicit TextStream(std::vector<std::string> stop);

  // Adds bytes and returns the text that is certain by now: valid UTF-8, maybe empty. What may
  // become a stop string or is half a character waits.
  std::string Add(std::string_view bytes);
  // What still waits, with U+FFFD for a character that never came to its end.
  std::string Finish();
  // A stop string has come; what it and all after it would be is dropped.
  bool stopped() const { return stopped_; }

 private:
  size_t PossibleStop() const;

  std::vector<std::string> stop_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_TEXT_STREAM_H_
