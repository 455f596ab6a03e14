// FlashInfer's kernels for the same job, for ctypes: rotation and append of one layer after the
// other, recorded once as a CUDA graph. They want the request's tokens in one tensor, so this row
// leaves out the gathering of facts. The headers are fetched, never kept here (fetch_peers.sh).

// Its own needs a newer CCCL than CUDA 13.0 brings. This one divides, twice per token.
#define FLASHINFER_FASTDIV_CUH_
#include <cstdint>
namespace flashinfer {
struct uint_fastdiv {
  uint32_t divisor = 1;
  __host__ __device__ uint_fastdiv() {}
  __host__ __device__ uint_fastdiv(uint32_t value) : divisor(value) {}
  __host__ __device__ operator unsigned() const { return divisor; }
  __host__ __device__ void divmod(uint32_t n, uint32_t& quotient, uint32_t& remainder) const {
    quotient = n / divisor;
    remainder = n - quotient * divisor;
  }
};
}  // namespace flashinfer

#include <flashinfer/page.cuh>
#include <flashinfer/pos_enc.cuh>

extern "C" {

// Device memory, but for layer_bases.
struct FlashInferRequest {
  nv_bfloat16* k;               // [layers][tokens][heads][dim]
  nv_bfloat16* v;               // likewise
  nv_bfloat16* rotated;         // [tokens][heads][dim], used by one layer after the other
  float* table;                 // [positions][cos, then sin]
  int32_t* positions;           // [tokens], for the rotation
  int32_t* places;              // [tokens], along the request's pages
  int32_t* zeros;               // [tokens]
  int32_t* pages;               // [page_count]
  int32_t* page_range;          // {0, page_count}
  int32_t* last_page_tokens;    // one number
  const uint64_t* layer_bases;  // [layers]: [page][token][head][K, then V]
  uint32_t layers, tokens, heads, dim, page_tokens;
};

static cudaError_t Launch(const FlashInferRequest& r, cudaStream_t stream) {
  using namespace flashinfer;
  const size_t row = size_t{r.heads} * r.dim;
  const int64_t strides[3] = {int64_t(2 * row * r.page_tokens), int64_t(2 * row), 2 * r.dim};
  for (uint32_t layer = 0; layer < r.layers; ++layer) {
    nv_bfloat16* k = r.k + layer * r.tokens * row;
    nv_bfloat16* v = r.v + layer * r.tokens * row;
    auto* base = reinterpret_cast<nv_bfloat16*>(r.layer_bases[layer]);
    cudaError_t error = BatchQKApplyRotaryPosIdsCosSinCache<nv_bfloat16, int32_t>(
        k, k, r.rotated, r.rotated, r.table, r.positions, r.tokens, 0, r.heads, r.dim, r.dim, row,
        r.dim, row, r.dim, row, r.dim, row, r.dim, /*interleave=*/false, stream);
    if (error != cudaSuccess) return error;
    const paged_kv_t<nv_bfloat16, int32_t> cache(r.heads, r.page_tokens, r.dim, 1, QKVLayout::kNHD,
                                                 base, base + r.dim, strides, r.pages, r.page_range,
                                                 r.last_page_tokens);
    error = AppendPagedKVCache<nv_bfloat16, int32_t>(cache, r.rotated, v, r.zeros, r.places,
                                                     r.tokens, row, r.dim, row, r.dim, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int FlashInferRecord(const FlashInferRequest* request, void** graph) {
  cudaStream_t stream = nullptr;
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return error;
  error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (error == cudaSuccess) {
    const cudaError_t launched = Launch(*request, stream);
    error = cudaStreamEndCapture(stream, &recorded);
    if (launched != cudaSuccess) error = launched;
  }
  if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, recorded, 0);
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  cudaStreamDestroy(stream);
  *graph = executable;
  return error;
}

int FlashInferReplay(void* graph, void* stream) {
  return cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream));
}

int FlashInferForget(void* graph) {
  return cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

}  // extern "C"
