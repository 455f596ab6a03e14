#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>

#include "ops/topk/score_rows.h"
#include "ops/topk/topk.h"

namespace inferscale {

namespace {

bool Better(const Scored& a, const Scored& b) {
  return a.score > b.score || (a.score == b.score && a.row < b.row);
}

// The k best so far; the worst of them is at the front.
class Best {
 public:
  explicit Best(size_t k) : k_(k) {}

  void Offer(const Scored& candidate) {
    if (std::isnan(candidate.score)) return;
    if (heap_.size() < k_) {
      heap_.push_back(candidate);
      std::push_heap(heap_.begin(), heap_.end(), Better);
    } else if (Better(candidate, heap_.front())) {
      std::pop_heap(heap_.begin(), heap_.end(), Better);
      heap_.back() = candidate;
      std::push_heap(heap_.begin(), heap_.end(), Better);
    }
  }

  std::vector<Scored> Take() {
    std::sort_heap(heap_.begin(), heap_.end(), Better);
    return std::move(heap_);
  }

 private:
  const size_t k_;
  std::vector<Scored> heap_;
};

// Rows first, ..., first + 63 that take part, as a bitmap.
uint64_t AllowedWord(size_t first, size_t count, std::span<const uint64_t> allowed) {
  const uint64_t word = allowed.empty() ? ~uint64_t{0} : allowed[first / 64];
  const size_t left = count - first;
  return left < 64 ? word & ((uint64_t{1} << left) - 1) : word;
}

}  // namespace

std::vector<Scored> TopK(const VectorRows& rows, std::span<const float> query, size_t k,
                         std::span<const uint64_t> allowed) {
  assert(query.size() == rows.dims);
  assert(allowed.empty() || allowed.size() == (rows.count + 63) / 64);
  if (k == 0) return {};
  Best best(k);
  std::array<uint32_t, 64> chosen = {};
  std::array<float, 64> scores = {};
  for (size_t first = 0; first < rows.count; first += 64) {
    size_t count = 0;
    for (uint64_t word = AllowedWord(first, rows.count, allowed); word != 0; word &= word - 1) {
      chosen[count++] =
          static_cast<uint32_t>(first) + static_cast<uint32_t>(std::countr_zero(word));
    }
    ScoreRows(rows, query, std::span(chosen).first(count), scores.data());
    for (size_t i = 0; i < count; ++i) best.Offer({chosen[i], scores[i]});
  }
  return best.Take();
}

}  // namespace inferscale
