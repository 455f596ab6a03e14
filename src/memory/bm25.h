// Ranking by words: BM25 (Robertson and Zaragoza, 2009) over a small collection in memory.
//
//   score(d) = sum over the query's distinct words w of
//              idf(w) * tf(w, d) * (k1 + 1) / (tf(w, d) + k1 * (1 - b + b * |d| / average |d|))
//   idf(w)   = ln(1 + (N - df(w) + 0.5) / (df(w) + 0.5)),  k1 = 1.2, b = 0.75
#ifndef INFERSCALE_MEMORY_BM25_H_
#define INFERSCALE_MEMORY_BM25_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace inferscale {

// The words of a text as they are ranked: lower case; split at all that is no letter or digit;
// without English words that say little ("the", "did"); an English plural, -ing, -ed or final -e
// taken off; each Chinese or Japanese character a word. Letters with accents are kept.
std::vector<std::string> RankingWords(std::string_view text);

class Bm25 {
 public:
  // The document's number: 0, 1, ...
  uint32_t Add(std::string_view text);
  uint32_t size() const { return static_cast<uint32_t>(lengths_.size()); }

  // One score per document; 0 where no word is shared. Words are added up in the order in which
  // the query has them.
  std::vector<double> Score(std::string_view query) const;

  size_t MemoryBytes() const;  // an estimate, at once

 private:
  struct Posting {
    uint32_t document;
    uint32_t count;  // of the word in it
  };

  // By a 64-bit hash of the word: two of a user's words that collide would only share a score.
  std::unordered_map<uint64_t, std::vector<Posting>> postings_;
  std::vector<uint32_t> lengths_;  // of the documents, in words
  uint64_t total_length_ = 0;
  size_t posting_bytes_ = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_BM25_H_
