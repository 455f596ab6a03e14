// Context-Window Encoding: what a fact is encoded behind. The window is computed, gives the fact
// its context and is thrown away; it always stands behind the prompt's true header.
#ifndef INFERSCALE_MEMORY_WINDOW_H_
#define INFERSCALE_MEMORY_WINDOW_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "memory/fact_store.h"

namespace inferscale {

enum class WindowKind : uint8_t {
  kIsolated,    // the header alone
  kAnchor,      // one fixed window of `count` of the user's facts, spread over the history
  kWindow,      // the `count` facts of the conversation before the episode
  kSession,     // the whole conversation before the episode, in one causal pass
  kNeighbours,  // the user's `count` facts most similar to the episode
};

struct WindowStrategy {
  WindowKind kind = WindowKind::kAnchor;
  uint32_t count = 20;

  bool operator==(const WindowStrategy&) const = default;
  std::string ToString() const;  // "anchor(20)", "isolated", ...
};

// kInvalid, naming the input, unless it is what ToString writes.
Result<WindowStrategy> ParseWindow(std::string_view text);

// Of a strategy and the header's tokens: KV made under another one is encoded again.
Hash128 EncodingId(const WindowStrategy& strategy, std::span<const Token> header);

// Rows of a user's facts by similarity to an episode, best first, the episode's own left out.
using FindNeighbours =
    std::function<Result<std::vector<int64_t>>(const Episode& episode, size_t count)>;

// Chooses windows. An anchor is drawn when the user has twice as many facts as it holds (before
// that the facts right before the episode serve), and drawn anew when the history has grown four
// times.
class WindowChooser {
 public:
  WindowChooser(FactStore& store, WindowStrategy strategy, FindNeighbours neighbours)
      : store_(store), strategy_(strategy), neighbours_(std::move(neighbours)) {}

  const WindowStrategy& strategy() const { return strategy_; }
  // The facts to stand before `episode`, in order.
  Result<std::vector<Fact>> Choose(const Episode& episode);

 private:
  Result<std::vector<Fact>> Anchor(const Episode& episode);

  FactStore& store_;
  WindowStrategy strategy_;
  FindNeighbours neighbours_;
};

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_WINDOW_H_
