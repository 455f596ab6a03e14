// One user's facts, ready to be searched: metadata, vectors and words. Not thread-safe.
#ifndef INFERSCALE_MEMORY_USER_INDEX_H_
#define INFERSCALE_MEMORY_USER_INDEX_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "memory/bm25.h"
#include "memory/fact.h"
#include "memory/fact_store.h"
#include "memory/search_index.h"
#include "ops/topk/topk.h"

namespace inferscale {

class UserIndex {
 public:
  // Brings the index up to date with the store. Facts that were added are read; after any other
  // change, or once a fact has expired, all are; then it is true that facts in here had changed or
  // gone. If it fails, the next call goes on.
  Result<bool> Refresh(FactStore& store, const std::string& tenant, const std::string& user,
                       const Hash128& embedder_id, int64_t now_ms);

  // As SearchIndex::Search. The scope's tenant and user are taken to be this index's.
  Result<std::vector<SearchHit>> Search(const SearchQuery& query) const;
  size_t MemoryBytes() const;

 private:
  // A bit for every fact, as TopK takes it. Empty: all.
  using Bitmap = std::vector<uint64_t>;

  void Add(Fact&& fact, std::span<const float> vector);
  Bitmap Allowed(const SearchQuery& query) const;
  // The cosines of the best `depth` of `allowed` that have a vector.
  std::vector<Scored> RankByVector(std::span<const float> vector, size_t depth,
                                   const Bitmap& allowed) const;
  void FillCosines(std::span<const float> vector, std::span<const uint32_t> numbers,
                   std::vector<SearchHit>& hits) const;

  int64_t generation_ = -1;  // of the store, as far as it is in here; -1: nothing is
  int64_t next_expiry_ms_ = std::numeric_limits<int64_t>::max();
  size_t text_bytes_ = 0;  // on the heap, of strings in facts_

  // Facts have numbers 0, 1, ... in here, in the order of their rows.
  std::vector<Fact> facts_;
  uint32_t dims_ = 0;              // 0 until a fact has a vector
  std::vector<uint16_t> vectors_;  // [facts][dims] in half precision; zeros for those without
  std::vector<uint64_t> has_vector_;
  bool all_have_vectors_ = true;
  Bm25 bm25_;
};

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_USER_INDEX_H_
