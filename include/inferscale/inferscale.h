/* InferScale's C interface: what an engine's connector needs to find, load, inject and capture KV.
 *
 * Conventions
 * - Handles are opaque and come from an _open function; the matching _close takes them back and
 *   takes NULL. What a handle was opened with must outlive it: device > store > tier > lease,
 *   capture; device > cache.
 * - Functions return INFERSCALE_OK or another inferscale_code, and then say in `error` (which may
 *   be NULL) what was wrong with what. No text of a fact is in it. Nothing throws.
 * - A device address is a uint64_t and a stream an intptr_t (a cudaStream_t; 0 is the default
 *   stream), so that any language can pass them. Without a device addresses are of host memory,
 *   and streams are ignored.
 * - Structs whose first member is `size` have it set to sizeof by the caller: later versions add
 *   members at the end, and what a caller does not know is taken as 0. UNSUPPORTED if a later
 *   caller has set a member that this version does not know.
 * - Functions that use a device make it the calling thread's current one. A stream that was given
 *   with a lease or a capture must live until that is closed or committed.
 * - Any thread may call anything; one lease or capture is used by one thread at a time.
 */
#ifndef INFERSCALE_INFERSCALE_H_
#define INFERSCALE_INFERSCALE_H_

#include <stdint.h>

#if defined(__GNUC__)
#define INFERSCALE_API __attribute__((visibility("default")))
#else
#define INFERSCALE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when something that exists changes its meaning. */
#define INFERSCALE_ABI_VERSION 1
INFERSCALE_API uint32_t inferscale_abi_version(void);
INFERSCALE_API const char* inferscale_version(void); /* "0.1.0" */

/* ---- codes, small things ---- */
enum inferscale_code {
  INFERSCALE_OK = 0,
  INFERSCALE_INVALID = 1,     /* the caller's argument is wrong */
  INFERSCALE_NOT_FOUND = 2,   /* no such record, or not this tenant's */
  INFERSCALE_CONFLICT = 3,    /* of another model, shape or content than asked for */
  INFERSCALE_CORRUPT = 4,     /* stored bytes fail their checks */
  INFERSCALE_TRANSIENT = 5,   /* the system refused this time */
  INFERSCALE_EXHAUSTED = 6,   /* a budget or quota is full */
  INFERSCALE_UNSUPPORTED = 7, /* not by this device, model or version */
  INFERSCALE_CANCELLED = 8,
  INFERSCALE_INTERNAL = 9,
  INFERSCALE_PENDING = 100 /* on its way: ask again */
};

typedef struct inferscale_error {
  int32_t code;
  char message[508]; /* UTF-8, ends with 0 */
} inferscale_error;

/* 128 bits that name a record or a fingerprint; the first 8 bytes are the big-endian high half, so
 * that printed as hexadecimal digits they read as everywhere else in InferScale. */
typedef struct inferscale_key {
  uint8_t bytes[16];
} inferscale_key;

/* XXH3-128 of a sequence of fields, each with its length; all zeros if `fields` or a field's data
 * is NULL. */
typedef struct inferscale_field {
  const void* data;
  uint64_t bytes;
} inferscale_field;
INFERSCALE_API void inferscale_hash(const inferscale_field* fields, uint32_t count,
                                    inferscale_key* out);

enum inferscale_dtype {
  INFERSCALE_F32 = 0,
  INFERSCALE_F16 = 1,
  INFERSCALE_BF16 = 2,
  INFERSCALE_F8_E4M3 = 4 /* of caches only */
};

/* The KV of one token. Records are [layer][K, then V][token][head][dim], keys before RoPE. */
typedef struct inferscale_shape {
  uint32_t layers, kv_heads, dim; /* heads of this rank; K and V have the same dim */
  uint32_t dtype;                 /* of the records: F32, F16 or BF16 */
} inferscale_shape;

/* Whose records, and of which model. */
typedef struct inferscale_owner {
  const char* tenant;
  inferscale_key fingerprint;
  inferscale_shape shape;
} inferscale_owner;

/* ---- device ---- */
typedef struct inferscale_device inferscale_device;
/* `plugin`: path of libinferscale_cuda.so, or NULL to look for it. UNSUPPORTED says what is
 * missing. */
INFERSCALE_API int32_t inferscale_device_open(int32_t ordinal, const char* plugin,
                                              inferscale_device** out, inferscale_error* error);
INFERSCALE_API void inferscale_device_close(inferscale_device* device);

/* ---- store ---- */
/* The KV store of a data directory (its kv/ folder). Several processes may have it open. */
typedef struct inferscale_store inferscale_store;
typedef struct inferscale_store_options {
  uint32_t size;
  const char* dir;            /* that kv/ folder itself; created */
  uint64_t host_bytes;        /* budget of host memory for records */
  uint64_t tenant_host_bytes; /* 0: no limit; likewise below */
  uint64_t disk_bytes;
  uint64_t tenant_disk_bytes;
  inferscale_device* device; /* whose pinned memory the host budget is; NULL: ordinary memory */
} inferscale_store_options;
INFERSCALE_API int32_t inferscale_store_open(const inferscale_store_options* options,
                                             inferscale_store** out, inferscale_error* error);
INFERSCALE_API void inferscale_store_close(inferscale_store* store);

/* `expected` are the prompt's tokens that the record is claimed to hold from `record_token` on. */
typedef struct inferscale_claim {
  inferscale_key key;
  uint32_t record_token, tokens;
  const int32_t* expected;
} inferscale_claim;
/* codes[i]: OK, NOT_FOUND (also another tenant's), CONFLICT (another fingerprint or other tokens),
 * INVALID (beyond the record), CORRUPT, TRANSIENT. Reads no KV, and the disk only for records not
 * asked for lately; sees what other processes added and erased. */
INFERSCALE_API int32_t inferscale_store_verify(inferscale_store* store,
                                               const inferscale_owner* owner,
                                               const inferscale_claim* claims, uint32_t count,
                                               int32_t* codes, inferscale_error* error);
/* Durable on return, and gone from the store's tiers too; who holds a record in a lease may go on.
 * Unknown keys are no error. */
INFERSCALE_API int32_t inferscale_store_erase(inferscale_store* store, const inferscale_key* keys,
                                              uint32_t count, inferscale_error* error);

/* ---- tier: records at hand ---- */
/* Device memory for records, or without a device the store's host memory; and the thread that
 * brings records in and takes captured ones to the disk. */
typedef struct inferscale_tier inferscale_tier;
typedef struct inferscale_tier_options {
  uint32_t size;
  uint64_t device_bytes;        /* budget of records on the device; ignored without one */
  uint64_t tenant_device_bytes; /* 0: no limit */
  uint64_t capture_bytes; /* for records being captured or on their way to the disk; on a device as
                             much pinned host memory too */
} inferscale_tier_options;
INFERSCALE_API int32_t inferscale_tier_open(inferscale_store* store, inferscale_device* device,
                                            const inferscale_tier_options* options,
                                            inferscale_tier** out, inferscale_error* error);
/* Waits until what was committed is stored. */
INFERSCALE_API void inferscale_tier_close(inferscale_tier* tier);
/* The same; then the first error of a record that could not be stored since the last flush. */
INFERSCALE_API int32_t inferscale_tier_flush(inferscale_tier* tier, inferscale_error* error);

typedef struct inferscale_stats {
  uint32_t size;
  uint32_t reserved;
  uint64_t device_bytes, device_budget, device_pinned_bytes, device_hits, device_loads,
      device_loaded_bytes, device_evictions;
  uint64_t host_bytes, host_budget, host_pinned_bytes, host_hits, host_evictions;
  uint64_t disk_reads, disk_bytes, records, corrupt_records;
  uint64_t captures_stored, captures_failed, captures_waiting, capture_bytes;
  uint64_t lease_wait_us; /* together, of leases that were not at hand at once */
} inferscale_stats;
INFERSCALE_API int32_t inferscale_tier_stats(inferscale_tier* tier, inferscale_stats* out,
                                             inferscale_error* error);

/* ---- lease: records held in place ---- */
typedef struct inferscale_lease inferscale_lease;
/* Returns at once. Records on the device are held from then on; those in host memory are copied by
 * the device while the caller goes on; those on disk are fetched by the tier's thread, and the
 * lease is pending until then. */
INFERSCALE_API int32_t inferscale_lease_open(inferscale_tier* tier, const inferscale_owner* owner,
                                             const inferscale_key* keys, uint32_t count,
                                             inferscale_lease** out, inferscale_error* error);
/* PENDING, or OK when it is settled: then codes[i] (codes may be NULL) says for each key OK or why
 * not: verify's codes but INVALID, EXHAUSTED if what is held leaves no room, CANCELLED if the tier
 * was closed before.
 * Records that are OK stay in place until the lease is closed. */
INFERSCALE_API int32_t inferscale_lease_poll(inferscale_lease* lease, int32_t* codes,
                                             inferscale_error* error);
/* Work that was given to a stream with it may still run: the records wait for it. */
INFERSCALE_API void inferscale_lease_close(inferscale_lease* lease);

/* ---- cache: an engine's paged cache ---- */
typedef struct inferscale_cache inferscale_cache;
typedef struct inferscale_strides { /* in bytes; the dims of a head are contiguous */
  int64_t page, token, head;
} inferscale_strides;
/* Element (layer l, page p, token t of the page, head h, dim d) of K is at
 * k_base[l] + p * k.page + t * k.token + h * k.head + d * (bytes of dtype), and V likewise. */
typedef struct inferscale_cache_spec {
  uint32_t size;
  uint32_t layers; /* in this cache */
  uint32_t heads, dim;
  uint32_t page_tokens;   /* any number > 0 */
  uint32_t pages;         /* ids from 0 to pages - 1 */
  uint32_t dtype;         /* BF16, F16, F8_E4M3; without a device F32, F16, BF16 */
  uint32_t scale_heads;   /* of an fp8 cache: 0 (no scales), 1 or `heads` */
  const uint64_t* k_base; /* [layers] */
  const uint64_t* v_base;
  inferscale_strides k, v;
  const float* k_scale; /* [layers][scale_heads]: element times scale is the number */
  const float* v_scale;
  /* Which of a record's layers each of these is; NULL: the same. An engine that keeps its layers
   * in groups with page tables of their own has one cache for each group. */
  const uint32_t* record_layer; /* [layers] */
  uint32_t record_layers;       /* of a record; 0: `layers` */
  /* cos and sin as the engine uses them: table r is [positions][rotary_dims[r] / 2 of cos, then of
   * sin]. Layers of a table with rotary_dims 0 are not rotated. At most 4. */
  uint32_t rope_tables;
  uint32_t rope_kind; /* 1: NeoX halves, 2: interleaved pairs */
  uint32_t positions;
  const uint32_t* rotary_dims; /* [rope_tables] */
  const float* const* rope;    /* [rope_tables], NULL where rotary_dims is 0; host memory */
  const uint32_t* layer_rope;  /* [layers]: index into rope; NULL: all 0 */
} inferscale_cache_spec;
/* Copies all that the spec points to, but for the cache itself. UNSUPPORTED for what the kernels
 * don't do. `device` NULL: a cache in host memory. */
INFERSCALE_API int32_t inferscale_cache_open(inferscale_device* device,
                                             const inferscale_cache_spec* spec,
                                             inferscale_cache** out, inferscale_error* error);
INFERSCALE_API void inferscale_cache_close(inferscale_cache* cache);

/* ---- inject ---- */
/* Tokens [record_token, record_token + tokens) of the lease's record, rotated to `position` and the
 * ones after it. Token i of the span is in page pages[(page_token + i) / page_tokens], at
 * (page_token + i) % page_tokens of it. */
typedef struct inferscale_inject_span {
  inferscale_lease* lease;
  uint32_t record; /* index into the lease's keys; it must be OK */
  uint32_t record_token, tokens;
  int32_t position;
  uint32_t page_token;
} inferscale_inject_span;
/* All layers of this cache and all spans, in one launch where the tables fit; nothing but the
 * spans' slots is written, and no two spans may share one. Records of all spans have one dtype. On
 * `stream`, behind the copies that bring the records in; `spans` and `pages` may go on return.
 * INVALID: nothing was done. */
INFERSCALE_API int32_t inferscale_inject(inferscale_cache* cache,
                                         const inferscale_inject_span* spans, uint32_t count,
                                         const int32_t* pages, uint32_t page_count, intptr_t stream,
                                         inferscale_error* error);

/* ---- capture ---- */
/* A record being captured, piece by piece. */
typedef struct inferscale_capture inferscale_capture;
/* Room for a record of these tokens. EXHAUSTED if there is none now. */
INFERSCALE_API int32_t inferscale_capture_open(inferscale_tier* tier, const inferscale_owner* owner,
                                               const inferscale_key* key, const int32_t* tokens,
                                               uint32_t count, inferscale_capture** out,
                                               inferscale_error* error);
typedef struct inferscale_capture_span {
  inferscale_capture* capture;
  uint32_t record_token, tokens;
  int32_t position;
  uint32_t page_token;
} inferscale_capture_span;
/* The inverse of inject. */
INFERSCALE_API int32_t inferscale_capture_spans(inferscale_cache* cache,
                                                const inferscale_capture_span* spans,
                                                uint32_t count, const int32_t* pages,
                                                uint32_t page_count, intptr_t stream,
                                                inferscale_error* error);
/* Writes the record's `bytes` to host memory at `to`; waits for the stream. INVALID unless all of
 * it was captured. For tests of a model. */
INFERSCALE_API int32_t inferscale_capture_read(inferscale_capture* capture, intptr_t stream,
                                               void* to, uint64_t bytes, inferscale_error* error);
/* Gives the record to the tier's thread, which stores it as soon as the stream has passed what was
 * captured. A key that exists already is left as it is. INVALID unless every token of every layer
 * was captured: nothing is stored. The handle is gone in any case. */
INFERSCALE_API int32_t inferscale_capture_commit(inferscale_capture* capture, intptr_t stream,
                                                 inferscale_error* error);
/* Drops it instead. */
INFERSCALE_API void inferscale_capture_close(inferscale_capture* capture, intptr_t stream);

#ifdef __cplusplus
}
#endif

#endif /* INFERSCALE_INFERSCALE_H_ */
