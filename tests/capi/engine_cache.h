// A paged cache as some engine might have it: random strides, pages, layer groups and RoPE tables.
// Device memory is host memory here, so it can be looked at.
#ifndef INFERSCALE_TESTS_CAPI_ENGINE_CACHE_H_
#define INFERSCALE_TESTS_CAPI_ENGINE_CACHE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../kv/seed.h"
#include "kv/rope.h"
#include "ops/cache_layout.h"
#include "world.h"

namespace inferscale {

// What all of an engine's caches share.
struct EngineModel {
  EngineModel(Random& random, Place place);

  KvShape shape;  // of records
  Dtype cache_dtype = Dtype::kBF16;
  RopeKind kind = RopeKind::kNeox;
  uint32_t positions = 0;
  std::vector<uint32_t> rotary_dims;       // of each table
  std::vector<std::vector<float>> values;  // as the engine has them
  std::vector<uint32_t> layer_rope;        // of a record's layers
  // Groups of a record's layers, with a cache for each; in any order.
  std::vector<std::vector<uint32_t>> groups;

  inferscale_shape c_shape() const {
    return {shape.layers, shape.kv_heads, shape.k_dim, static_cast<uint32_t>(shape.dtype)};
  }
  std::string Describe() const;
};

// Tokens of a record, and where they stand in a cache.
struct EngineSpan {
  uint32_t record_token = 0, tokens = 0;
  int32_t position = 0;
  uint32_t page_token = 0;
};

class EngineCache {
 public:
  // Of one group, with room for at least `tokens` tokens; `pages` is a list of that many pages, in
  // random order.
  EngineCache(Random& random, const EngineModel& model, size_t group, uint32_t tokens);
  EngineCache(const EngineCache&) = delete;
  EngineCache& operator=(const EngineCache&) = delete;

  void Open(inferscale_device* device);
  // What is in it: ordinary numbers everywhere, or bytes that are none.
  void FillWithNumbers(Random& random);
  void Poison() { bytes = std::vector<std::byte>(bytes.size(), std::byte{0xA5}); }

  // The plain reference of inject into, or capture out of, a copy of the cache's bytes.
  void Inject(FactKvView record, const EngineSpan& span, std::vector<std::byte>& copy) const;
  void Capture(MutableFactKvView record, const EngineSpan& span) const;
  // To what the two ways of rounding may differ.
  void ExpectNear(const std::vector<std::byte>& want) const;

  inferscale_cache* get() const { return handle_.get(); }

  uint32_t page_tokens = 0, page_count = 0;
  std::vector<int32_t> pages;
  std::vector<std::byte> bytes;

 private:
  struct Half {
    inferscale_strides strides = {};
    std::vector<uint64_t> offset;  // of each layer
  };
  void LayOut(Random& random);
  std::vector<int64_t> Slots(const EngineSpan& span) const;
  template <typename Body>
  void ForEachLayer(FactKvView record, const std::vector<std::byte>& cache, const Body& body) const;

  const EngineModel& model_;
  const std::vector<uint32_t>& layers_;  // of a record
  Half k_, v_;
  CacheHandle handle_;
};

// As ExpectNear, of any elements.
void ExpectElementsNear(std::span<const std::byte> got, std::span<const std::byte> want,
                        Dtype dtype);

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_CAPI_ENGINE_CACHE_H_
