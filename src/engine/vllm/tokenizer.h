// A tokenizer that is asked over HTTP.
#ifndef INFERSCALE_ENGINE_VLLM_TOKENIZER_H_
#define INFERSCALE_ENGINE_VLLM_TOKENIZER_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/hash.h"
#include "engine/tokenizer.h"
#include "engine/vllm/protocol.h"

namespace inferscale {

// The parts of `text` between cuts, each of which stands inside of a marker, behind its first
// character: no part contains a marker of two characters or more.
std::vector<std::string_view> CutMarkers(std::string_view text,
                                         std::span<const std::string> markers);

class VllmTokenizer final : public Tokenizer {
 public:
  // The tokens of a text by itself, in which special tokens are recognised. Thread-safe.
  using Ask = std::function<Result<std::vector<Token>>(std::string_view text)>;

  VllmTokenizer(Ask ask, const TokenizerInfo& info);
  ~VllmTokenizer() override;

  std::vector<Token> Bos() const override;
  Result<std::vector<Token>> Markup(std::string_view text) const override { return ask_(text); }
  Result<std::vector<Token>> Text(std::string_view text,
                                  std::span<const Token> reserved) const override;
  // Asks in the background, several texts at a time. The answer is kept for ten seconds, until
  // Text takes it, or until many others have come.
  void Expect(std::string_view text) const override;
  bool IsUserDefined(Token token) const override { return special_.contains(token); }

 private:
  using Tokens = Result<std::vector<Token>>;
  struct Expected {
    Hash128 text_hash;
    std::chrono::steady_clock::time_point since;
    std::shared_future<Tokens> tokens;
  };
  struct Job {
    std::string text;
    std::promise<Tokens> tokens;
  };

  Tokens AskSafely(std::string_view text) const;
  std::optional<std::shared_future<Tokens>> Take(std::string_view text) const;
  void Work(const std::stop_token& stop) const;

  const Ask ask_;
  std::optional<Token> bos_;
  std::vector<std::string> markers_;
  std::unordered_set<Token> special_;

  mutable std::mutex mutex_;
  mutable std::condition_variable_any wake_;
  mutable std::list<Job> jobs_;           // under mutex_
  mutable std::list<Expected> expected_;  // under mutex_, oldest first
  std::vector<std::jthread> workers_;
};

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_VLLM_TOKENIZER_H_
