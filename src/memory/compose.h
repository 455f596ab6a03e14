// Composition: from a ranking to the prompt for one question. Facts are taken by the episode: an
// episode comes in when one of its facts does, so that what was said together is read together.
//
//   header | episodes with KV, best last | facts without KV, best last | tail
//            `------- injected -------'    `- computed -'
//
// The last `plain_last` facts before the tail are computed whether they have KV or not: they stand
// nearest to the question and matter most. The tokens are the same whether KV is used or not.
#ifndef INFERSCALE_MEMORY_COMPOSE_H_
#define INFERSCALE_MEMORY_COMPOSE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "kv/prompt_format.h"
#include "memory/fact_store.h"
#include "memory/search_index.h"

namespace inferscale {

struct ComposeOptions {
  uint32_t facts = 50;          // k: at most this many facts
  uint32_t fact_tokens = 0;     // at most this many tokens of facts; 0: no limit
  uint32_t plain_last = 3;      // m
  uint32_t min_kv_tokens = 16;  // fewer injectable tokens than this are computed: not worth a copy
};

// A run of facts of one episode, in order.
struct Piece {
  const Episode* episode = nullptr;
  uint32_t first = 0;
  uint32_t count = 0;
  float score = 0.0F;  // of its best fact
};

// Chooses facts for a question: episodes by their best hit, whole where they fit. Where an episode
// does not fit into `facts` or `fact_tokens` its first facts up to the hit are taken if those fit.
// Facts in `held` (rows) are left out. Worst piece first, best last. `tokens_of` gives a fact's
// size.
std::vector<Piece> ChoosePieces(std::span<const SearchHit> hits,
                                const std::unordered_map<int64_t, Episode>& episodes,
                                const std::unordered_set<int64_t>& held,
                                const ComposeOptions& options,
                                const std::function<uint32_t(const Fact&)>& tokens_of);

struct ComposedFact {
  const Fact* fact = nullptr;
  uint32_t first_token = 0;  // in the composition
  uint32_t tokens = 0;
  float score = 0.0F;  // its own fused score; 0 if it came with its episode
  bool injected = false;
};

// Tokens [first, first + tokens) stand in record `key` from `record_token` on.
struct KvSpan {
  uint32_t first = 0;
  uint32_t tokens = 0;
  uint32_t record_token = 0;
  Hash128 key;
};

struct Composition {
  std::vector<Token> tokens;
  std::vector<KvSpan> spans;        // in order
  std::vector<ComposedFact> facts;  // in order
};

// Token ids of facts' lines, kept while used: a fact's text is tokenised once. No user's are shared
// with another. Thread-safe.
class FactTokens {
 public:
  FactTokens(const PromptFormat& format, size_t max_facts);
  ~FactTokens();
  Result<std::shared_ptr<const std::vector<Token>>> Get(const Fact& fact);
  // Get will be called for these: what a tokenizer elsewhere has to do begins for all at once.
  void Expect(std::span<const Fact> facts);
  // Keeps nothing of a user's, for one of whose facts has changed or gone.
  void Forget(const std::string& tenant, const std::string& user);
  size_t size() const;  // how many facts

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What stands before the first fact: the header, with its own KV record if there is one.
struct Opening {
  std::span<const Token> tokens;
  Hash128 key;  // zero: no KV
};

// Lays the pieces out. `kv` holds the KV known for episodes; hits give facts their scores.
Result<Composition> Compose(const Opening& opening, std::span<const Piece> pieces,
                            std::span<const Token> tail,
                            const std::unordered_map<int64_t, EpisodeKv>& kv,
                            std::span<const SearchHit> hits, const ComposeOptions& options,
                            FactTokens& tokens);

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_COMPOSE_H_
