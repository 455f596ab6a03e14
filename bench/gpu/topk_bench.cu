// Checks and times topk in several shapes of its kernel, to choose among them and to see how near
// they come to reading memory:
//
//   nvcc -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a -Isrc bench/gpu/topk_bench.cu
//        -o topk_bench && ./topk_bench
//
// One line per case and variant. `us` is the median of 50 single launches (CUDA events, behind a
// kernel that keeps the device busy until all is queued); `queued` is the mean of 50 launches in a
// row. Data rotates over more than four times the L2 cache. `read` is the rate of a kernel that
// only reads the same bytes in the same way, `copy` that of cudaMemcpy (read plus written).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kv/element_bits.h"
#include "ops/topk/topk_launch.cuh"

namespace inferscale::cuda {
namespace {

constexpr int kRepeats = 50;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK(call) Check(call, #call)

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) {
    CHECK(cudaMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T)));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() const { return data_; }
  std::vector<T> Read(size_t count) const {
    std::vector<T> out(count);
    CHECK(cudaMemcpy(out.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  T* data_ = nullptr;
};

__device__ uint32_t Mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7FB5D329728EA185ULL;
  x = (x ^ (x >> 27)) * 0x81DADEF4BC2DD44DULL;
  return static_cast<uint32_t>(x >> 32);
}
// From -1 to 1, with steps that f16 has.
__device__ float Value(uint64_t i) { return (static_cast<int>(Mix(i) % 2001) - 1000) / 1024.0F; }
__global__ void FillHalf(uint16_t* to, size_t count, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    to[i] = FloatToF16(Value(i + seed));
  }
}
__global__ void FillFloat(float* to, size_t count, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    to[i] = Value(i + seed);
  }
}

__global__ void Delay(uint64_t nanoseconds) {
  uint64_t start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

// Reads everything and writes nothing, which the compiler can't know.
__global__ void __launch_bounds__(256, 4) ReadAll(const Vec16* from, size_t count, uint32_t* out) {
  uint32_t mixed = 0;
  const size_t stride = size_t{gridDim.x} * 256;
  size_t i = blockIdx.x * size_t{256} + threadIdx.x;
  for (; i + 7 * stride < count; i += 8 * stride) {
    Vec16 all[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) all[j] = LoadStream(from + i + j * stride);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      mixed ^= all[j].word[0] ^ all[j].word[1] ^ all[j].word[2] ^ all[j].word[3];
  }
  for (; i < count; i += stride) mixed ^= LoadStream(from + i).word[0];
  if (mixed == 0x12345678) *out = mixed;
}

struct Timing {
  double single_us, queued_us;
};

// run(i) launches the i-th repetition.
Timing Time(const std::function<void(int)>& run) {
  std::vector<cudaEvent_t> events(2 * kRepeats);
  for (cudaEvent_t& event : events) CHECK(cudaEventCreate(&event));
  for (int i = 0; i < 5; ++i) run(i);
  CHECK(cudaDeviceSynchronize());
  Delay<<<1, 1>>>(5'000'000);
  for (int i = 0; i < kRepeats; ++i) {
    CHECK(cudaEventRecord(events[2 * i]));
    run(i);
    CHECK(cudaEventRecord(events[2 * i + 1]));
  }
  CHECK(cudaDeviceSynchronize());
  std::vector<float> each(kRepeats);
  for (int i = 0; i < kRepeats; ++i) {
    CHECK(cudaEventElapsedTime(&each[i], events[2 * i], events[2 * i + 1]));
  }
  std::sort(each.begin(), each.end());
  Delay<<<1, 1>>>(5'000'000);
  CHECK(cudaEventRecord(events[0]));
  for (int i = 0; i < kRepeats; ++i) run(i);
  CHECK(cudaEventRecord(events[1]));
  CHECK(cudaDeviceSynchronize());
  float all = 0;
  CHECK(cudaEventElapsedTime(&all, events[0], events[1]));
  for (cudaEvent_t event : events) cudaEventDestroy(event);
  return {each[kRepeats / 2] * 1e3, all / kRepeats * 1e3};
}

struct Case {
  std::string name;
  std::vector<uint32_t> counts;
  uint32_t dims, k;
  bool half;
  bool filtered = false;  // every second row

  size_t Rows() const {
    size_t rows = 0;
    for (const uint32_t count : counts) rows += count;
    return rows;
  }
  size_t Bytes() const { return Rows() * dims * (half ? 2 : 4); }
};

struct Best {
  uint32_t row;
  double score;
};

// A case's data, several times over so that no run finds its rows in the cache.
class Data {
 public:
  explicit Data(const Case& of)
      : case_(of),
        copies_(
            std::max<size_t>(2, 1 + size_t{300} * 1000 * 1000 / std::max<size_t>(of.Bytes(), 1))),
        rows_(copies_ * of.Bytes() / 16 + 1),
        queries_(of.counts.size() * of.dims),
        allowed_(of.Rows() / 64 + of.counts.size() + 1),
        out_rows_(of.counts.size() * of.k),
        out_scores_(of.counts.size() * of.k) {
    const size_t elements = copies_ * of.Bytes() / (of.half ? 2 : 4);
    if (of.half) {
      FillHalf<<<4096, 256>>>(reinterpret_cast<uint16_t*>(rows_.get()), elements, 1);
    } else {
      FillFloat<<<4096, 256>>>(reinterpret_cast<float*>(rows_.get()), elements, 1);
    }
    FillFloat<<<256, 256>>>(queries_.get(), of.counts.size() * of.dims, uint64_t{1} << 60);
    CHECK(cudaMemset(allowed_.get(), 0x55, (of.Rows() / 64 + of.counts.size() + 1) * 8));
    CHECK(cudaDeviceSynchronize());
    for (size_t copy = 0; copy < copies_; ++copy) {
      std::vector<PluginSearch>& searches = searches_.emplace_back();
      size_t at = copy * of.Bytes() / 16, word = 0;
      for (size_t i = 0; i < of.counts.size(); ++i) {
        searches.push_back({rows_.get() + at, queries_.get() + i * of.dims,
                            of.filtered ? allowed_.get() + word : nullptr, of.counts[i]});
        at += size_t{of.counts[i]} * of.dims * (of.half ? 2 : 4) / 16;
        word += (of.counts[i] + 63) / 64;
      }
    }
  }

  const Case& of() const { return case_; }
  size_t copies() const { return copies_; }
  const Vec16* rows() const { return rows_.get(); }
  PluginTopK Call(size_t copy) const {
    return {searches_[copy].data(),
            static_cast<uint32_t>(case_.counts.size()),
            case_.dims,
            case_.k,
            static_cast<uint8_t>(case_.half ? Dtype::kF16 : Dtype::kF32),
            out_rows_.get(),
            out_scores_.get(),
            nullptr};
  }
  std::vector<uint32_t> Rows() const { return out_rows_.Read(case_.counts.size() * case_.k); }
  std::vector<float> Scores() const { return out_scores_.Read(case_.counts.size() * case_.k); }

  // Of search i of copy 0: the k + 1 best, in double.
  std::vector<Best> Reference(size_t i) const {
    const uint32_t count = case_.counts[i], dims = case_.dims;
    std::vector<float> query(dims);
    CHECK(cudaMemcpy(query.data(), searches_[0][i].query, dims * 4, cudaMemcpyDeviceToHost));
    const size_t bytes = size_t{count} * dims * (case_.half ? 2 : 4);
    std::vector<uint32_t> raw(bytes / 4 + 1);
    CHECK(cudaMemcpy(raw.data(), searches_[0][i].rows, bytes, cudaMemcpyDeviceToHost));
    const auto* halves = reinterpret_cast<const uint16_t*>(raw.data());
    const auto* floats = reinterpret_cast<const float*>(raw.data());
    std::vector<Best> best;
    for (uint32_t row = 0; row < count; ++row) {
      if (case_.filtered && row % 2 == 1) continue;  // 0x55: the even bits
      double score = 0;
      for (uint32_t d = 0; d < dims; ++d) {
        const size_t at = size_t{row} * dims + d;
        score += double{query[d]} * (case_.half ? DecodeF16(halves[at]) : floats[at]);
      }
      best.push_back({row, score});
    }
    std::stable_sort(best.begin(), best.end(),
                     [](const Best& a, const Best& b) { return a.score > b.score; });
    best.resize(std::min<size_t>(best.size(), case_.k + 1));
    return best;
  }

 private:
  const Case case_;
  const size_t copies_;
  DeviceArray<Vec16> rows_;
  DeviceArray<float> queries_;
  DeviceArray<uint64_t> allowed_;
  DeviceArray<uint32_t> out_rows_;
  DeviceArray<float> out_scores_;
  std::vector<std::vector<PluginSearch>> searches_;
};

// "ok", or what is wrong with the results that lie in `data`, of copy 0.
std::string Compare(const Data& data, const std::vector<std::vector<Best>>& want) {
  const std::vector<uint32_t> rows = data.Rows();
  const std::vector<float> scores = data.Scores();
  const uint32_t k = data.of().k;
  const double tolerance = data.of().dims * 1e-6;
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t rank = 0; rank < k; ++rank) {
      const uint32_t row = rows[i * k + rank];
      const bool exists = rank < want[i].size();
      if (!exists && row == 0xFFFFFFFF) continue;
      const std::string where = " search " + std::to_string(i) + " rank " + std::to_string(rank) +
                                " row " + std::to_string(row);
      if (!exists || row == 0xFFFFFFFF) return "WRONG COUNT" + where;
      const double score = want[i][rank].score;
      if (std::abs(scores[i * k + rank] - score) > tolerance) return "WRONG SCORE" + where;
      const bool apart =
          (rank == 0 || want[i][rank - 1].score - score > 2 * tolerance) &&
          (rank + 1 >= want[i].size() || score - want[i][rank + 1].score > 2 * tolerance);
      if (apart && row != want[i][rank].row) return "WRONG ROW" + where;
    }
  }
  return "ok";
}

struct Ceiling {
  double read_us, copy_us;
};

Ceiling MeasureCeiling(const Data& data, uint32_t multiprocessors) {
  const size_t bytes = data.of().Bytes(), chunks = bytes / 16;
  DeviceArray<uint32_t> out(1);
  const Timing read = Time([&](int i) {
    ReadAll<<<multiprocessors * 4, 256>>>(data.rows() + i % data.copies() * chunks, chunks,
                                          out.get());
  });
  // Half the bytes read and half written are as much traffic.
  DeviceArray<Vec16> to(chunks / 2 * data.copies());
  const Timing copy = Time([&](int i) {
    const size_t at = i % data.copies();
    CHECK(cudaMemcpyAsync(to.get() + at * (chunks / 2), data.rows() + at * chunks, chunks / 2 * 16,
                          cudaMemcpyDeviceToDevice));
  });
  return {read.single_us, copy.single_us};
}

template <typename Shape>
int Launch(const PluginTopK& call, const TopKDevice& device, cudaStream_t stream) {
  return static_cast<Dtype>(call.row_dtype) == Dtype::kF16
             ? LaunchTopKShape<Shape, true>(call, device, stream)
             : LaunchTopKShape<Shape, false>(call, device, stream);
}

// Twice through a graph: the second must find the workspace as the first did.
template <typename Shape>
void RunCaptured(const PluginTopK& call, const TopKDevice& device) {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const int error = Launch<Shape>(call, device, stream);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(static_cast<cudaError_t>(error));
  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
}

template <typename Shape>
bool RunVariant(const Data& data, const std::vector<std::vector<Best>>& want,
                const Ceiling& ceiling, uint32_t min_waves) {
  TopKDevice device = {};
  CHECK(TopKDeviceOf<Shape>(&device));
  device.min_waves = min_waves;
  std::vector<PluginTopK> calls;
  for (size_t copy = 0; copy < data.copies(); ++copy) calls.push_back(data.Call(copy));
  const uint64_t bytes = TopKWorkspaceBytes(calls[0], device);
  DeviceArray<std::byte> workspace(bytes);
  CHECK(cudaMemset(workspace.get(), 0xFF, bytes));
  CHECK(cudaMemset(workspace.get(), 0, kTopKTicketBytes));
  for (PluginTopK& call : calls) call.workspace = workspace.get();

  RunCaptured<Shape>(calls[0], device);
  std::string verdict = Compare(data, want);
  const Timing timing = Time([&](int i) {
    CHECK(static_cast<cudaError_t>(Launch<Shape>(calls[i % calls.size()], device, nullptr)));
  });
  // Still right after a hundred launches, and the same to the last bit.
  const int again = Launch<Shape>(calls[0], device, nullptr);
  CHECK(static_cast<cudaError_t>(again));
  CHECK(cudaDeviceSynchronize());
  if (verdict == "ok") verdict = Compare(data, want);
  const std::vector<float> once = data.Scores();
  CHECK(static_cast<cudaError_t>(Launch<Shape>(calls[0], device, nullptr)));
  if (verdict == "ok" && data.Scores() != once) verdict = "NOT REPEATABLE";

  const double read_bytes = static_cast<double>(data.of().Bytes()) * (data.of().filtered ? 0.5 : 1);
  std::printf(
      "  %3u threads, %u rows, %u blocks/SM, >= %u waves: %8.2f us (queued %8.2f)  %7.1f GB/s"
      "  %5.1f %% of read  tile %u  %s\n",
      Shape::kThreads, Shape::kRows, Shape::kBlocksPerSm, min_waves, timing.single_us,
      timing.queued_us, read_bytes / timing.single_us * 1e-3,
      100 * ceiling.read_us / timing.single_us,
      TopKTileRows({calls[0].searches, std::min(calls[0].search_count, kTopKLargeLaunch)}, device),
      verdict.c_str());
  return verdict == "ok";
}

bool RunCase(const Case& of, uint32_t multiprocessors) {
  const Data data(of);
  std::vector<std::vector<Best>> want;
  // All of a small case, the first searches of a large one: the reference takes a second per GB.
  size_t rows = 0;
  for (size_t i = 0; i < of.counts.size() && (i == 0 || rows + of.counts[i] <= 50'000); ++i) {
    want.push_back(data.Reference(i));
    rows += of.counts[i];
  }
  const Ceiling ceiling = MeasureCeiling(data, multiprocessors);
  std::printf(
      "%s: %zu searches, %zu rows x %u %s, k %u, %.1f MB; read %.2f us (%.1f GB/s), copy %.2f us"
      " (%.1f GB/s)\n",
      of.name.c_str(), of.counts.size(), of.Rows(), of.dims, of.half ? "f16" : "f32", of.k,
      of.Bytes() * 1e-6, ceiling.read_us, of.Bytes() / ceiling.read_us * 1e-3, ceiling.copy_us,
      of.Bytes() / ceiling.copy_us * 1e-3);
  bool ok = true;
  for (const uint32_t waves : {1U, 2U}) {
    ok &= RunVariant<TopKShape<256, 4, 4>>(data, want, ceiling, waves);
    ok &= RunVariant<TopKShape<256, 4, 3>>(data, want, ceiling, waves);
    ok &= RunVariant<TopKShape<256, 8, 2>>(data, want, ceiling, waves);
    ok &= RunVariant<TopKShape<128, 4, 8>>(data, want, ceiling, waves);
  }
  std::fflush(stdout);
  return ok;
}

int Main() {
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  std::printf("%s, %d multiprocessors, L2 %.0f MB\n", device.name, device.multiProcessorCount,
              device.l2CacheSize * 1e-6);
  std::vector<uint32_t> mixed;
  for (uint32_t i = 0; i < 300; ++i) mixed.push_back(i % 7 == 0 ? 0 : i % 50 == 1 ? 20'000 : i * 3);
  const std::vector<uint32_t> users(64, 2500);
  const std::vector<Case> cases = {
      {"64 users", users, 384, 50, true},
      {"64 users, f32", users, 384, 50, false},
      {"64 users, half of the rows filtered", users, 384, 50, true, true},
      {"one user", {2500}, 384, 50, true},
      {"16 users", std::vector<uint32_t>(16, 2500), 384, 50, true},
      {"64 users, k 128", users, 384, 128, true},
      {"64 users, 1024 dims", std::vector<uint32_t>(64, 1000), 1024, 50, true},
      {"300 users of all sizes", mixed, 384, 50, true},
      {"1200 users", std::vector<uint32_t>(1200, 500), 384, 50, true},
      {"a large user", {100'000}, 384, 50, true},
      {"a million", {1'000'000}, 384, 50, true},
      {"a million, f32", {1'000'000}, 384, 50, false},
      {"odd dims", {3333, 17, 5000}, 312, 37, true},
  };
  bool ok = true;
  for (const Case& of : cases) ok &= RunCase(of, static_cast<uint32_t>(device.multiProcessorCount));
  std::puts(ok ? "all right" : "SOMETHING IS WRONG");
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace inferscale::cuda

int main() { return inferscale::cuda::Main(); }
