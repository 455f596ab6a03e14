// Records whose every byte follows from their number, so that a test can tell whose KV it got.
#ifndef INFERSCALE_TESTS_STORE_SAMPLE_H_
#define INFERSCALE_TESTS_STORE_SAMPLE_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "store/kv_store.h"

namespace inferscale {

inline const KvShape kSampleShape{2, 2, 32, 32, Dtype::kF16};  // 512 bytes a token
inline const Fingerprint kSampleFingerprint{0x0123456789abcdef, 0xfedcba9876543210};

struct Sample {
  KvRecordInfo info;
  std::vector<std::byte> payload;

  KvPut Put() const { return {info, payload}; }
};

// Number, tokens and payload of different `n` differ; between 1 and 24 tokens.
inline Sample MakeSample(uint64_t n, const std::string& tenant = "tenant",
                         const Fingerprint& fingerprint = kSampleFingerprint) {
  std::mt19937_64 random(n);
  Sample sample;
  sample.info.key = {n, ~n};
  sample.info.tenant = tenant;
  sample.info.fingerprint = fingerprint;
  sample.info.shape = kSampleShape;
  const size_t tokens = 1 + random() % 24;
  for (size_t i = 0; i < tokens; ++i) {
    sample.info.tokens.push_back(static_cast<Token>(random() % 50'000));
  }
  sample.payload.resize(tokens * kSampleShape.TokenBytes());
  for (std::byte& b : sample.payload) b = static_cast<std::byte>(random());
  return sample;
}

inline Hash128 SampleKey(uint64_t n) { return {n, ~n}; }

inline bool IsSample(const PinnedKv& kv, uint64_t n) {
  const Sample sample = MakeSample(n);
  const FactKvView view = kv.view();
  return view.shape == kSampleShape && view.SizeBytes() == sample.payload.size() &&
         std::equal(sample.payload.begin(), sample.payload.end(), view.data) &&
         std::equal(sample.info.tokens.begin(), sample.info.tokens.end(), kv.tokens().begin(),
                    kv.tokens().end());
}

inline Status PutSamples(KvStore& store, const std::vector<uint64_t>& numbers) {
  std::vector<Sample> samples;
  std::vector<KvPut> puts;
  for (const uint64_t n : numbers) samples.push_back(MakeSample(n));
  for (const Sample& sample : samples) puts.push_back(sample.Put());
  return store.Put(puts);
}

inline Status EraseSamples(KvStore& store, const std::vector<uint64_t>& numbers) {
  std::vector<Hash128> keys;
  for (const uint64_t n : numbers) keys.push_back(SampleKey(n));
  return store.Erase(keys);
}

inline Result<std::shared_ptr<const PinnedKv>> GetSample(KvStore& store, uint64_t n) {
  return store.Get(SampleKey(n), kSampleFingerprint, kSampleShape);
}

// A directory that goes with the test. In memory where the system offers that, for tests that lose
// unsynced data by themselves and need no disk to wait for.
class TempDir {
 public:
  enum class Where : uint8_t { kDisk, kMemory };

  explicit TempDir(Where where = Where::kDisk) {
    std::filesystem::path base = std::filesystem::temp_directory_path();
    if (where == Where::kMemory && ::access("/dev/shm", W_OK) == 0) base = "/dev/shm";
    std::string pattern = base / "inferscale_store_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline KvStoreOptions SampleOptions(const std::string& dir) {
  KvStoreOptions options;
  options.dir = dir;
  options.segment_bytes = 64 << 10;
  options.arena_bytes = 1 << 20;
  return options;
}

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_STORE_SAMPLE_H_
