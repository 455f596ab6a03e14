#include "memory/user_index.h"

#include <algorithm>

#include "memory/half.h"

namespace inferscale {
namespace {

constexpr double kRankOffset = 60.0;  // the k of reciprocal rank fusion
// How far down each ranking is followed. What is further down adds less than a fifth of the first.
constexpr size_t kMinDepth = 200;
constexpr size_t kDepthPerHit = 4;

bool TestBit(std::span<const uint64_t> bits, size_t i) {
  return bits.empty() || ((bits[i / 64] >> (i % 64)) & 1U) != 0;
}
void SetBit(std::span<uint64_t> bits, size_t i) { bits[i / 64] |= uint64_t{1} << (i % 64); }

// What a fact's strings hold on the heap; short ones lie in the fact itself.
size_t TextBytes(const Fact& fact) {
  size_t bytes = 0;
  for (const std::string* text : {&fact.id, &fact.scope.tenant, &fact.scope.user, &fact.scope.agent,
                                  &fact.scope.run, &fact.text, &fact.speaker, &fact.metadata}) {
    if (text->capacity() >= sizeof(std::string) / 2) bytes += text->capacity() + 1;
  }
  return bytes;
}

// The facts that share a word with the query, best first, ties by smaller number.
std::vector<uint32_t> RankByWords(std::span<const double> scores, size_t depth,
                                  std::span<const uint64_t> allowed) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > 0 && TestBit(allowed, i)) order.push_back(i);
  }
  const auto better = [&](uint32_t a, uint32_t b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
  };
  const size_t count = std::min(depth, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
                    better);
  order.resize(count);
  return order;
}

}  // namespace

Result<bool> UserIndex::Refresh(FactStore& store, const std::string& tenant,
                                const std::string& user, const Hash128& embedder_id,
                                int64_t now_ms) {
  // The number before the facts: what changes in between is then read again next time.
  INFERSCALE_ASSIGN(const int64_t generation, store.Generation(tenant, user));
  const bool expired = now_ms >= next_expiry_ms_;
  if (generation == generation_ && !expired) return false;
  const bool only_additions = generation >> 32 == generation_ >> 32 && !expired;
  const bool changed = !only_additions && generation_ != -1;
  if (!only_additions) *this = UserIndex();

  bool sizes_differ = false;
  const int64_t last_row = facts_.empty() ? 0 : facts_.back().row;
  INFERSCALE_TRY(store.ForEachAfter(tenant, user, last_row, embedder_id,
                                    [&](Fact&& fact, std::span<const float> vector) {
                                      if (fact.expires_ms && *fact.expires_ms <= now_ms) return;
                                      if (dims_ == 0) dims_ = static_cast<uint32_t>(vector.size());
                                      sizes_differ |= !vector.empty() && vector.size() != dims_;
                                      if (!sizes_differ) Add(std::move(fact), vector);
                                    }));
  if (sizes_differ) {
    return Fail(Code::kCorrupt, "a user's vectors of one embedder differ in size");
  }
  generation_ = generation;
  return changed;
}

void UserIndex::Add(Fact&& fact, std::span<const float> vector) {
  const size_t number = facts_.size();
  if (fact.expires_ms) next_expiry_ms_ = std::min(next_expiry_ms_, *fact.expires_ms);
  text_bytes_ += TextBytes(fact);
  bm25_.Add(RenderFact(fact));
  facts_.push_back(std::move(fact));

  has_vector_.resize(number / 64 + 1);
  if (vector.empty()) {
    all_have_vectors_ = false;
  } else {
    SetBit(has_vector_, number);
  }
  vectors_.resize(number * dims_);  // facts before the first with a vector have zeros, too
  for (const float value : vector) vectors_.push_back(FloatToHalf(value));
  vectors_.resize((number + 1) * dims_);
}

size_t UserIndex::MemoryBytes() const {
  return sizeof(*this) + facts_.capacity() * sizeof(Fact) + text_bytes_ +
         vectors_.capacity() * sizeof(uint16_t) + has_vector_.capacity() * sizeof(uint64_t) +
         bm25_.MemoryBytes();
}

UserIndex::Bitmap UserIndex::Allowed(const SearchQuery& query) const {
  const std::string& agent = query.scope.agent;
  const std::string& run = query.scope.run;
  const bool filtered = query.filter != nullptr && !query.filter->matches_all();
  if (agent.empty() && run.empty() && !filtered) return {};
  Bitmap allowed((facts_.size() + 63) / 64);
  for (size_t i = 0; i < facts_.size(); ++i) {
    const Scope& scope = facts_[i].scope;
    if (!agent.empty() && scope.agent != agent) continue;
    if (!run.empty() && scope.run != run) continue;
    if (filtered && !query.filter->Matches(facts_[i])) continue;
    SetBit(allowed, i);
  }
  return allowed;
}

std::vector<Scored> UserIndex::RankByVector(std::span<const float> vector, size_t depth,
                                            const Bitmap& allowed) const {
  if (vector.empty() || dims_ == 0) return {};
  const VectorRows rows{std::as_bytes(std::span(vectors_)).data(), facts_.size(), dims_,
                        Dtype::kF16};
  if (all_have_vectors_) return TopK(rows, vector, depth, allowed);
  Bitmap both = has_vector_;
  for (size_t i = 0; i < allowed.size(); ++i) both[i] &= allowed[i];
  return TopK(rows, vector, depth, both);
}

void UserIndex::FillCosines(std::span<const float> vector, std::span<const uint32_t> numbers,
                            std::vector<SearchHit>& hits) const {
  Bitmap wanted(has_vector_.size());
  for (const uint32_t number : numbers) SetBit(wanted, number);
  for (const Scored& scored : RankByVector(vector, numbers.size(), wanted)) {
    const auto at = std::find(numbers.begin(), numbers.end(), scored.row) - numbers.begin();
    hits[static_cast<size_t>(at)].cosine = scored.score;
  }
}

Result<std::vector<SearchHit>> UserIndex::Search(const SearchQuery& query) const {
  if (!query.vector.empty() && dims_ != 0 && query.vector.size() != dims_) {
    return Fail(Code::kInvalid, "the question's vector has {} dimensions, the facts' {}",
                query.vector.size(), dims_);
  }
  const size_t limit = std::min(query.limit, facts_.size());
  const size_t depth = std::max(kMinDepth, kDepthPerHit * limit);
  const Bitmap allowed = Allowed(query);
  const std::vector<double> bm25 = bm25_.Score(query.text);

  std::vector<double> fused(facts_.size(), 0.0);
  std::vector<uint32_t> candidates;
  const auto give = [&](uint32_t number, size_t rank) {
    if (fused[number] == 0) candidates.push_back(number);
    fused[number] += 1.0 / (kRankOffset + static_cast<double>(rank));
  };
  size_t rank = 0;
  for (const Scored& scored : RankByVector(query.vector, depth, allowed)) give(scored.row, ++rank);
  rank = 0;
  for (const uint32_t number : RankByWords(bm25, depth, allowed)) give(number, ++rank);

  std::sort(candidates.begin(), candidates.end(), [&](uint32_t a, uint32_t b) {
    return fused[a] > fused[b] || (fused[a] == fused[b] && a < b);
  });
  candidates.resize(std::min(limit, candidates.size()));
  std::vector<SearchHit> hits;
  hits.reserve(candidates.size());
  for (const uint32_t number : candidates) {
    hits.push_back({facts_[number].row, facts_[number].episode, static_cast<float>(fused[number]),
                    0.0F, static_cast<float>(bm25[number])});
  }
  FillCosines(query.vector, candidates, hits);
  return hits;
}

}  // namespace inferscale
