// Random cases for inject and capture on a device: what the kernels are compiled for, in every
// layout of a paged cache.
#ifndef INFERSCALE_TESTS_OPS_DEVICE_CASE_H_
#define INFERSCALE_TESTS_OPS_DEVICE_CASE_H_

#include <optional>
#include <string>
#include <vector>

#include "../kv/seed.h"
#include "ops/device.h"

namespace inferscale {

// What a case may be drawn from; an empty list means any.
struct DeviceCaseLimits {
  uint32_t max_layers = 4;
  uint32_t max_spans = 6;
  uint32_t max_span_tokens = 60;
  bool integers = false;  // small whole numbers, no rotation: every element is exact
};

class DeviceCase {
 public:
  DeviceCase(Device& device, Random& random, const DeviceCaseLimits& limits = {});

  DeviceTransfer transfer() const;
  const DeviceCache& cache() const { return described_; }

  // The cache and the records as they are on the device now.
  std::vector<std::byte> Cache() const;
  std::vector<std::byte> Record(size_t span) const;
  void ResetCache() const;  // to what it was at first: noise for capture, poison elsewhere
  void PoisonRecords() const;

  // What they should hold after inject into, or capture out of, the first cache: element by element
  // in double, rounded once.
  std::vector<std::byte> InjectedCache() const;
  std::vector<std::byte> CapturedRecord(size_t span) const;

  // Fails unless two caches agree: to a unit in the last place where spans lie, bit by bit
  // elsewhere.
  void ExpectSameCache(const std::vector<std::byte>& got, const std::vector<std::byte>& want) const;
  void ExpectSameRecord(size_t span, const std::vector<std::byte>& got,
                        const std::vector<std::byte>& want) const;

  std::string Describe() const;

  // Public for tests that change a case.
  std::vector<DeviceSpan> spans;
  std::vector<int32_t> pages;
  Dtype record_dtype = Dtype::kBF16;

 private:
  struct Head {  // one head of one token in one layer
    size_t span;
    uint32_t token, layer, head;
  };
  std::vector<std::byte> Download(const void* from, size_t bytes) const;
  template <typename Visit>
  void ForEachHead(Visit visit) const;
  struct Compared {
    size_t elements = 0, different = 0;
    std::vector<std::byte> rest;  // what was got, with the compared heads as they should be
  };
  // Fails where an element is further off than rounding; of one span, or of all.
  template <typename OffsetOf>
  Compared CompareHeads(std::optional<size_t> span, Dtype dtype, OffsetOf offset_of,
                        const std::vector<std::byte>& got,
                        const std::vector<std::byte>& want) const;
  size_t CacheOffset(bool is_k, const Head& head) const;
  size_t RecordOffset(bool is_k, const Head& head) const;
  uint32_t RecordLayer(uint32_t layer) const;
  double Scale(bool is_k, const Head& head) const;
  void Turn(const Head& head, bool back, std::vector<double>& x) const;
  FactKvView View(const std::vector<std::byte>& record, size_t span) const;
  void MakeRopes(Random& random, bool integers);
  void MakeLayout(Random& random);
  void MakeRecords(Random& random, const DeviceCaseLimits& limits);
  void FillNumbers(Random& random, bool integers, Dtype dtype, std::byte* to, size_t count) const;

  Device& device_;
  uint32_t layers_ = 0;         // of the cache
  uint32_t record_layers_ = 0;  // of a record
  DeviceCacheSpec spec_;
  std::vector<RopeTable> tables_;
  std::vector<uint8_t> layer_table_;
  std::vector<float> key_scales_;
  std::vector<std::vector<std::byte>> records_;
  std::vector<std::byte> cache_bytes_;  // all layers; bases are offsets into it
  std::vector<size_t> k_offset_, v_offset_;
  std::string layout_;
  DeviceMemory device_cache_, device_scales_;
  std::vector<DeviceMemory> device_records_;
  DeviceCache described_;
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_OPS_DEVICE_CASE_H_
