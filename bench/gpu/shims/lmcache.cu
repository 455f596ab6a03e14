// LMCache's way of putting stored chunks into a paged cache, for ctypes: for every sixteen chunks
// one launch that turns the keys in place to their new positions and one that scatters them. Its
// own sources do the work; they are fetched, never kept here (fetch_peers.sh).
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "mem_kernels.cuh"
#include "pos_kernels.cuh"

extern "C" {

struct LmcacheRequest {
  const uint64_t* chunks;         // [count] device memory, bf16 [layers][slots][heads][K, then V]
  const uint64_t* slot_mappings;  // [count] device memory, int64 [tokens]
  const int64_t* positions;       // [count] where a chunk's first token goes; it was stored at 0
  const int32_t* tokens;          // [count]
  uint64_t layer_pointers;        // device memory, [layers]
  uint64_t table;                 // device memory, float [positions][cos, then sin]
  uint32_t count, layers, slots, heads, dim, page_tokens, pages;
};

// 0, or 1 with the reason on stderr.
int LmcacheInject(const LmcacheRequest* request) try {
  const LmcacheRequest& r = *request;
  const auto dim = static_cast<int>(r.dim);
  const auto row = static_cast<int>(r.heads * r.dim * 2);
  for (uint32_t at = 0; at < r.count; at += MAX_FUSED_TRANSFER_CHUNKS) {
    const uint32_t end = std::min(r.count, at + MAX_FUSED_TRANSFER_CHUNKS);
    const std::vector<uintptr_t> chunks(r.chunks + at, r.chunks + end);
    const std::vector<uintptr_t> slot_mappings(r.slot_mappings + at, r.slot_mappings + end);
    const std::vector<int64_t> from(end - at, 0);
    const std::vector<int64_t> to(r.positions + at, r.positions + end);
    const std::vector<int> tokens(r.tokens + at, r.tokens + end);
    rotary_embedding_k_fused_ramp_multi_ptr(chunks, at::kBFloat16, at::kFloat, r.layers * r.slots,
                                            from, to, r.slots, dim, 2 * dim, r.heads, r.table, dim,
                                            /*is_neox=*/true);
    multi_layer_kv_transfer_fused_ptr(
        chunks, slot_mappings, tokens, r.layer_pointers, static_cast<int>(r.layers),
        static_cast<int>(r.slots), row, /*element_size=*/2, torch::Device(torch::kCUDA, 0),
        static_cast<int>(r.pages * r.page_tokens), TransferDirection::H2D,
        EngineKVFormat::NL_X_NB_BS_NH_CS, static_cast<int>(r.page_tokens), 2 * dim);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "lmcache: %s\n", error.what());
  return 1;
}

}  // extern "C"
