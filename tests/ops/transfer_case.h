// Random cases for inject and capture: shapes, dtypes, RoPE kinds, cache layouts and spans. Every
// implementation is tested with the same ones.
#ifndef INFERSCALE_TESTS_OPS_TRANSFER_CASE_H_
#define INFERSCALE_TESTS_OPS_TRANSFER_CASE_H_

#include <string>
#include <vector>

#include "../kv/seed.h"
#include "ops/capture/capture.h"
#include "ops/inject/inject.h"

namespace inferscale {

// kOrdinary: what a projection makes. kHard: now and then zeros, infinities, NaNs, subnormals and
// values that a smaller dtype can't hold.
enum class Values { kOrdinary, kHard };

// Which records: of f32, f16 and bf16, or some quantised ones among them (for inject only).
enum class Records { kPlain, kAlsoQuantised };

struct TransferCase {
  explicit TransferCase(Random& random, Values values = Values::kHard,
                        Records kinds = Records::kPlain);
  TransferCase(const TransferCase&) = delete;  // layout() points into cache
  TransferCase& operator=(const TransferCase&) = delete;

  RopeTables ropes() const { return {tables, layer_table}; }
  CacheLayout layout() const;
  std::vector<InjectSpan> inject_spans() const;
  // The same spans over other records, of the same sizes.
  std::vector<CaptureSpan> capture_spans(std::vector<std::vector<std::byte>>& into) const;
  // A head of span `s` in the cache.
  std::byte* CacheRow(bool is_k, size_t s, uint32_t token, uint32_t layer, uint32_t head) const;

  std::string Describe() const;

  std::vector<RopeTable> tables;
  std::vector<uint8_t> layer_table;
  std::vector<FactKvView> records;  // one per span; dtypes may differ
  std::vector<CacheSpan> spans;
  std::vector<std::vector<std::byte>> record_bytes;
  std::vector<float> key_scales;  // of all quantised records
  std::vector<std::byte> cache;   // all layers, with gaps between
  std::vector<std::byte*> k_base, v_base;
  CacheStrides k, v;
  uint32_t page_tokens = 0;
  Dtype cache_dtype = Dtype::kF16;

 private:
  void MakeRopes(Random& random, uint32_t layers, uint32_t k_dim);
  void MakeRecords(Random& random, const KvShape& shape, Values values, Records kinds);
  void FillQuantised(Random& random, Values values, const FactKvView& record, std::byte* bytes);
  void MakeLayout(Random& random, const KvShape& shape);
  void MakeSlots(Random& random);

  std::string layout_name_;
  int64_t slot_count_ = 0;
  std::vector<std::vector<int64_t>> slots_;
};

// Counts elements and how many differ in any bit.
struct Agreement {
  size_t elements = 0;
  size_t different = 0;
};

// Fails unless each of a head's `dims` elements at `got` is within a unit in the last place of
// `want`'s, or within what float arithmetic can lose where large numbers of the head cancel.
void ExpectClose(const std::byte* got, const std::byte* want, Dtype dtype, uint32_t dims,
                 Agreement& agreement);

// This processor's SIMD targets. UseSimdTarget makes every operation use one from then on.
std::vector<int64_t> SimdTargets();
void UseSimdTarget(int64_t target);

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_OPS_TRANSFER_CASE_H_
