// Retrieval: the facts of one scope that a question needs. Two rankings, vectors (cosine) and BM25,
// are fused by reciprocal rank (Cormack et al., SIGIR 2009): score = sum 1 / (60 + rank), over the
// first max(200, 4 * limit) facts of each ranking.
//
// A user's vectors and postings are kept in memory once used (least recently used users leave at
// the byte budget) and checked against FactStore::Generation before every search, so that changes
// by any process are seen. Statistics of BM25 are the user's own: no tenant can learn of another's
// words.
#ifndef INFERSCALE_MEMORY_SEARCH_INDEX_H_
#define INFERSCALE_MEMORY_SEARCH_INDEX_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "memory/fact.h"
#include "memory/fact_store.h"
#include "memory/filter.h"

namespace inferscale {

struct SearchQuery {
  Scope scope;                    // user "": the facts of no user, not those of any
  std::string text;               // for BM25
  std::span<const float> vector;  // of length 1, for cosine; may be empty
  size_t limit = 50;
  const Filter* filter = nullptr;
};

struct SearchHit {
  int64_t row = 0;
  int64_t episode = 0;
  float score = 0.0F;   // fused, higher is better
  float cosine = 0.0F;  // 0 if it has no vector
  float bm25 = 0.0F;    // 0 if no word is shared
};

struct SearchIndexOptions {
  // Of all users together. One user that needs more stays alone in memory until another is
  // searched: building it for every search would take as much memory, and far more time.
  size_t memory_bytes = size_t{256} << 20;
  // Called with a tenant and a user by a search which finds that facts of theirs were changed or
  // deleted since the last one, maybe by another process.
  std::function<void(const std::string&, const std::string&)> on_change = nullptr;
};

class SearchIndex {
 public:
  // Both must outlive the index.
  SearchIndex(FactStore& store, const Clock& clock, const Hash128& embedder_id,
              SearchIndexOptions options);
  ~SearchIndex();

  // Best first, ties by smaller row. Expired facts are never returned. Thread-safe; searches of one
  // user take turns. kInvalid if the vector has another size than the facts'; else the store's
  // errors.
  Result<std::vector<SearchHit>> Search(const SearchQuery& query);
  // Keeps nothing of a user in memory.
  void Forget(const std::string& tenant, const std::string& user);
  size_t memory_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_SEARCH_INDEX_H_
