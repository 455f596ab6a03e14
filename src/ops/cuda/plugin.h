// The border between the core and the plug-in libinferscale_cuda.so: plain data and function
// pointers, so that the core links no CUDA and a plug-in of another build is refused, not crashed
// into. Everything is checked on the core's side (ops/device.h); the plug-in trusts what it gets.
//
// Functions return 0, a cudaError_t, or kNoInstance. They never throw, never synchronise
// (unless their name says so) and may be called from any thread. Pointers are device memory unless
// said otherwise. A stream is a cudaStream_t; null is the legacy default stream.
#ifndef INFERSCALE_OPS_CUDA_PLUGIN_H_
#define INFERSCALE_OPS_CUDA_PLUGIN_H_

#include <cstddef>
#include <cstdint>

namespace inferscale::cuda {

inline constexpr uint32_t kPluginAbi = 2;
inline constexpr int kNoInstance = -1;  // this (dtype, head_dim, rotation) was not compiled in

// An engine's cache, on the device. Strides in bytes, as in ops/cache_layout.h.
struct PluginCache {
  const uint64_t* k_base;  // [layers], device addresses, themselves in device memory
  const uint64_t* v_base;
  int64_t k_page, k_token, k_head;
  int64_t v_page, v_token, v_head;
  uint32_t page_tokens;  // any number > 0
  uint32_t layers, heads, dim;
  uint8_t dtype;  // kv/shape.h: kF16, kBF16, or kF8E4M3
  // For fp8: the value in the cache times the scale is the number. [layers][scale_heads], where
  // scale_heads is `heads` or 1 (one scale for a whole layer). Null: 1.
  const float* k_scale;
  const float* v_scale;
  uint32_t scale_heads;
  // Which of a record's layers each of these is, where the engine keeps its layers in groups with
  // page tables of their own: [layers], or null if they are the same ones.
  const uint32_t* record_layer;
  uint32_t record_layers;  // of a record
};

// cos and sin of every position: [positions][rotary_dims / 2 of cos, then of sin], as the engine
// uses them, widened to float.
inline constexpr int kMaxRopes = 4;
struct PluginRopes {
  const float* table[kMaxRopes];
  uint32_t rotary_dims[kMaxRopes];  // 0: the layers of this table are not rotated
  const uint8_t* layer_table;       // [layers], or null: all 0
  uint8_t tables;                   // how many there are
  uint8_t kind;                     // kv/rope_kind.h: kNeox or kInterleaved
};

// A run of tokens of one record (kv/fact_kv.h) and where it goes. `page_token` counts tokens along
// PluginTransfer::pages: token i of the run is in page pages[(page_token + i) / page_tokens].
struct PluginSpan {
  void* record;  // 16-byte aligned; written by capture, read by inject
  uint32_t record_tokens, first, tokens;
  int32_t position;  // of the first token
  uint32_t page_token;
};

struct PluginTransfer {
  const PluginCache* cache;
  const PluginRopes* ropes;
  const float* key_scales;  // [record_layers][heads][dim], of quantised records; else null
  const PluginSpan* spans;  // host memory, read before the call returns; likewise pages
  uint32_t span_count;
  const int32_t* pages;
  uint32_t page_count;
  uint8_t record_dtype;
};

// One search: the k best of `rows` for `query`.
struct PluginSearch {
  const void* rows;         // [count][dims], rows 16-byte aligned
  const float* query;       // [dims]
  const uint64_t* allowed;  // bitmap of (count + 63) / 64 words, or null
  uint32_t count;
};

struct PluginTopK {
  const PluginSearch* searches;  // host memory, read before the call returns
  uint32_t search_count;
  uint32_t dims, k;
  uint8_t row_dtype;   // kF16 or kF32
  uint32_t* out_rows;  // [search_count][k], best first; past the number of results 0xffffffff
  float* out_scores;   // [search_count][k]
  // topk_workspace(...) bytes, 16-byte aligned, the first 4 KB of them 0 before the first use.
  void* workspace;
};

struct PluginDeviceInfo {
  char name[256];
  uint64_t memory_bytes;
  uint32_t multiprocessors, l2_bytes;
  uint32_t major, minor;
};

enum PluginCopy : int { kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3 };

struct Plugin {
  uint32_t abi;
  const char* build;  // version and architectures, for `doctor`
  const char* (*error_string)(int code);

  int (*device_count)(int* count);
  int (*device_info)(int device, PluginDeviceInfo* info);
  int (*set_device)(int device);  // of the calling thread; before any call below

  int (*alloc)(uint64_t bytes, void** out);
  int (*free)(void* memory);
  int (*alloc_pinned)(uint64_t bytes,
                      void** out);  // host memory that the device copies from at full speed
  int (*free_pinned)(void* memory);
  int (*copy_async)(void* to, const void* from, uint64_t bytes, int kind, void* stream);
  int (*fill_async)(void* to, int byte, uint64_t bytes, void* stream);

  int (*stream_create)(void** out);  // non-blocking: does not wait for the default stream
  int (*stream_destroy)(void* stream);
  int (*stream_synchronize)(void* stream);
  int (*event_create)(void** out);
  int (*event_destroy)(void* event);
  int (*event_record)(void* event, void* stream);
  int (*event_query)(void* event, int* done);
  int (*stream_wait)(void* stream, void* event);

  int (*inject)(const PluginTransfer* transfer, void* stream);
  int (*capture)(const PluginTransfer* transfer, void* stream);
  uint64_t (*topk_workspace)(const PluginTopK* search);
  int (*topk)(const PluginTopK* search, void* stream);
};

// The plug-in's one exported function, by name: null if it does not speak `abi`.
using PluginEntry = const Plugin* (*)(uint32_t abi);
inline constexpr char kPluginEntryName[] = "inferscale_cuda_plugin";

}  // namespace inferscale::cuda

#endif  // INFERSCALE_OPS_CUDA_PLUGIN_H_
