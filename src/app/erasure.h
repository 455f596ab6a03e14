// The proof that what was erased is nowhere in a data directory.
#ifndef INFERSCALE_APP_ERASURE_H_
#define INFERSCALE_APP_ERASURE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "memory/fact_store.h"

namespace inferscale {

// Looks for many byte strings at once, in a time that hardly depends on how many they are.
class Needles {
 public:
  // Shorter or plainer ones turn up by chance.
  static constexpr size_t kShortest = 8;
  static constexpr int kDistinctBytes = 4;

  Needles();
  // Its number, which equal needles share; -1 if it is too short or too plain to be looked for.
  int Add(std::string_view bytes);
  size_t size() const { return needles_.size(); }
  size_t longest() const { return longest_; }
  // Sets hits[n] for every needle n that stands in `bytes`; `hits` has one for each.
  void Find(std::string_view bytes, std::vector<bool>& hits) const;

 private:
  std::vector<std::string> needles_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> by_start_;  // by their first eight bytes
  std::vector<bool> may_start_;                                   // by the first three
  size_t longest_ = 0;
};

struct ErasureProof {
  size_t texts = 0;  // looked for; long ones in pieces, as a database may break them anywhere
  size_t vectors = 0;
  size_t keys = 0;         // of KV records
  size_t short_texts = 0;  // not looked for: they would turn up by chance
  size_t shared = 0;       // texts and vectors found only because facts that stay say the same
  uint64_t files = 0;      // read whole
  uint64_t bytes = 0;
  std::vector<std::string> found_in;  // files, below the data directory
};

// Reads every file of `data_dir` and looks for what `traces` says. `facts` are those that stay.
Result<ErasureProof> ProveErasure(const std::string& data_dir, FactStore& facts,
                                  const Traces& traces);

}  // namespace inferscale

#endif  // INFERSCALE_APP_ERASURE_H_
