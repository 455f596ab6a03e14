// A small engine without positions, whose every value follows from the number of a record. For
// tests of what is around the moving of KV.
#ifndef INFERSCALE_TESTS_CAPI_PLAIN_ENGINE_H_
#define INFERSCALE_TESTS_CAPI_PLAIN_ENGINE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "world.h"

namespace inferscale {

class PlainEngine {
 public:
  static constexpr uint32_t kLayers = 2, kHeads = 1, kDim = 64, kPageTokens = 16, kPages = 4;
  static constexpr uint32_t kTokens = 8;  // of a record
  static constexpr uint64_t kRecordBytes = kTokens * kLayers * 2 * kHeads * kDim * 2;
  static constexpr inferscale_shape kShape = {kLayers, kHeads, kDim, INFERSCALE_BF16};
  static constexpr int32_t kFirstPage = 2;  // where records are captured from and injected to

  explicit PlainEngine(World& world, intptr_t stream)
      : world_(world), stream_(stream), bytes_(kLayers * 2 * kPlane) {
    opened_ = Open(Spec());
  }

  inferscale_cache_spec Spec() {
    for (uint32_t l = 0; l < kLayers; ++l) {
      k_base_[l] = reinterpret_cast<uint64_t>(bytes_.data()) + 2 * l * kPlane * sizeof(uint16_t);
      v_base_[l] = k_base_[l] + kPlane * sizeof(uint16_t);
    }
    inferscale_cache_spec spec = {};
    spec.size = sizeof(spec);
    spec.layers = kLayers;
    spec.heads = kHeads;
    spec.dim = kDim;
    spec.page_tokens = kPageTokens;
    spec.pages = kPages;
    spec.dtype = INFERSCALE_BF16;
    spec.k_base = k_base_;
    spec.v_base = v_base_;
    spec.k = spec.v = {kPageTokens * kRow * 2, kRow * 2, kDim * 2};
    return spec;
  }
  CacheHandle Open(const inferscale_cache_spec& spec) {
    inferscale_cache* opened = nullptr;
    inferscale_error error = {};
    EXPECT_EQ(inferscale_cache_open(world_.device.get(), &spec, &opened, &error), INFERSCALE_OK)
        << error.message;
    return CacheHandle(opened);
  }
  inferscale_cache* cache() const { return opened_.get(); }

  static std::vector<int32_t> Tokens(uint64_t n) {
    std::vector<int32_t> tokens(kTokens);
    for (uint32_t t = 0; t < kTokens; ++t) tokens[t] = static_cast<int32_t>(100 * n + t);
    return tokens;
  }

  // An open capture of record n, or why there is none.
  int32_t Begin(uint64_t n, const inferscale_owner& owner, inferscale_capture** out,
                inferscale_error* error = nullptr) {
    const std::vector<int32_t> tokens = Tokens(n);
    const inferscale_key key = Key(n);
    return inferscale_capture_open(world_.tier.get(), &owner, &key, tokens.data(), kTokens, out,
                                   error);
  }
  int32_t CaptureSpan(uint64_t n, inferscale_capture* capture) {
    std::fill(bytes_.begin(), bytes_.end(), Value(n));
    const inferscale_capture_span span = {capture, 0, kTokens, 0, 0};
    return inferscale_capture_spans(opened_.get(), &span, 1, &kFirstPage, 1, stream_, nullptr);
  }
  // Captures and commits record n; waits for the stream, but not for the disk.
  int32_t Store(uint64_t n, const inferscale_owner& owner) {
    inferscale_capture* capture = nullptr;
    if (const int32_t code = Begin(n, owner, &capture); code != INFERSCALE_OK) return code;
    EXPECT_EQ(CaptureSpan(n, capture), INFERSCALE_OK);
    const int32_t code = inferscale_capture_commit(capture, stream_, nullptr);
    Sync();
    return code;
  }
  // Injects record `i` of the lease and looks whether it is n.
  void ExpectRecord(uint64_t n, inferscale_lease* lease, uint32_t i) {
    std::fill(bytes_.begin(), bytes_.end(), uint16_t{0xFFFF});
    const inferscale_inject_span span = {lease, i, 0, kTokens, 0, 0};
    inferscale_error error = {};
    ASSERT_EQ(inferscale_inject(opened_.get(), &span, 1, &kFirstPage, 1, stream_, &error),
              INFERSCALE_OK)
        << error.message;
    Sync();
    for (size_t plane = 0; plane < 2 * kLayers; ++plane) {
      for (size_t at = 0; at < kPlane; ++at) {
        const bool inside =
            at / kRow / kPageTokens == kFirstPage && at / kRow % kPageTokens < kTokens;
        ASSERT_EQ(bytes_[plane * kPlane + at], inside ? Value(n) : 0xFFFF)
            << "record " << n << ", element " << at << " of plane " << plane;
      }
    }
  }
  void Sync() {
    if (world_.place == Place::kDevice) {
      ASSERT_EQ(EmulatedCuda().stream_synchronize(reinterpret_cast<void*>(stream_)), 0);
    }
  }

 private:
  static constexpr size_t kRow = kHeads * kDim;
  static constexpr size_t kPlane = kPages * kPageTokens * kRow;
  static uint16_t Value(uint64_t n) { return static_cast<uint16_t>(0x3F80 + n % 1000); }

  World& world_;
  const intptr_t stream_;
  std::vector<uint16_t> bytes_;  // [layer][K, then V][page][token][head][dim]
  uint64_t k_base_[kLayers] = {}, v_base_[kLayers] = {};
  CacheHandle opened_;
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_CAPI_PLAIN_ENGINE_H_
