// Context-Window Encoding: what a fact is encoded behind. The window is computed, gives the fact
// its context and is thrown away; it always stands behind the prompt's true header.
#ifndef INFERSCALE_MEMORY_WINDOW_H_
#define INFERSCALE_MEMORY_WINDOW_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "memory/fact_store.h"

namespace inferscale {

enum class WindowKind : uint8_t {
  kIsolated,    // the header alone
  kAnchor,      // a fixed window of the user's facts, spread over the history
  kWindow,      // the facts of the conversation before the episode
  kSession,     // the whole conversation before the episode, in one causal pass
  kNeighbours,  // the user's facts most similar to the episode
};

struct WindowStrategy {
  WindowKind kind = WindowKind::kAnchor;
  // How many facts stand in the window; none for kIsolated and kSession. With several counts an
  // episode is encoded behind a window of each, and the mean of its KV is kept: what one window
  // alone did to it averages out.
  std::vector<uint32_t> counts = {20};

  bool operator==(const WindowStrategy&) const = default;
  std::string ToString() const;  // "anchor(20)", "anchor(8+20)", "isolated", ...
};

constexpr size_t kMaxWindows = 16;

// kInvalid, naming the input, unless it is what ToString writes.
Result<WindowStrategy> ParseWindow(std::string_view text);

// Of a strategy and the header's tokens: KV made under another one is encoded again.
Hash128 EncodingId(const WindowStrategy& strategy, std::span<const Token> header);

// Rows of a user's facts by similarity to an episode, best first, the episode's own left out.
using FindNeighbours =
    std::function<Result<std::vector<int64_t>>(const Episode& episode, size_t count)>;

// Chooses windows. Anchors are drawn when the user has twice as many facts as the longest holds
// (before that the facts right before the episode serve), and drawn anew when the history has grown
// four times. Of several anchors those that hold a fact of the episode itself do not stand before
// it.
class WindowChooser {
 public:
  WindowChooser(FactStore& store, WindowStrategy strategy, FindNeighbours neighbours)
      : store_(store), strategy_(std::move(strategy)), neighbours_(std::move(neighbours)) {}

  const WindowStrategy& strategy() const { return strategy_; }
  // The windows to encode `episode` behind, each in order; at least one, and no two the same.
  Result<std::vector<std::vector<Fact>>> Choose(const Episode& episode);

 private:
  Result<std::vector<Fact>> ChooseOne(const Episode& episode, uint32_t count);
  Result<std::vector<std::vector<Fact>>> Anchors(const Episode& episode);
  // Facts of all anchors, one after another; empty if the user has too few.
  Result<std::vector<Fact>> AnchorFacts(const Scope& user);

  FactStore& store_;
  WindowStrategy strategy_;
  FindNeighbours neighbours_;
};

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_WINDOW_H_
