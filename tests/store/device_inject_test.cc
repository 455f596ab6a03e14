// The whole way of a record: from the disk through pinned memory and the device arena into a paged
// cache on the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "device_world.h"
#include "ops/element.h"

namespace inferscale {
namespace {

constexpr KvShape kShape{3, 2, 64, 64, Dtype::kBF16};
constexpr uint32_t kPageTokens = 16;
constexpr size_t kHeadBytes = 64 * 2, kRowBytes = 2 * kHeadBytes;
constexpr size_t kPageBytes = kPageTokens * kRowBytes;  // of K or of V
constexpr uint32_t kRecords = 4;

Sample MakeRecord(Random& random, uint64_t n) {
  Sample sample = MakeSample(n);
  sample.info.shape = kShape;
  sample.payload.resize(sample.info.tokens.size() * kShape.TokenBytes());
  for (size_t i = 0; i < sample.payload.size() / 2; ++i) {
    WriteElement(sample.payload.data(), Dtype::kBF16, i, random.Normal());
  }
  return sample;
}

TEST(DeviceInject, FromDiskIntoAPagedCache) {
  Random random(TestSeed());
  DeviceWorld world({.budget = 1 << 20});
  std::vector<Sample> samples;
  std::vector<Hash128> keys;
  uint32_t tokens = 0;
  for (uint64_t n = 1; n <= kRecords; ++n) {
    samples.push_back(MakeRecord(random, n));
    const KvPut put = samples.back().Put();
    ASSERT_TRUE(world.store->Put({&put, 1}));
    keys.push_back(samples.back().info.key);
    tokens += static_cast<uint32_t>(samples.back().info.tokens.size());
  }
  world.Reopen();

  // [layer][K, then V][page][token][head][dim]
  const uint32_t pages = tokens / kPageTokens + 3;
  const size_t plane = pages * kPageBytes;
  std::vector<std::byte> want(kShape.layers * 2 * plane, std::byte{0xA5});
  const std::vector<std::byte> poison = want;
  const DeviceMemory cache = world.device->Alloc(want.size()).value();
  DeviceCacheSpec spec;
  std::vector<std::byte*> k_base, v_base;
  for (size_t l = 0; l < kShape.layers; ++l) {
    k_base.push_back(want.data() + 2 * l * plane);
    v_base.push_back(k_base.back() + plane);
    spec.k_base.push_back(reinterpret_cast<uint64_t>(cache.data()) + 2 * l * plane);
    spec.v_base.push_back(spec.k_base.back() + plane);
  }
  spec.k = spec.v = {kPageBytes, kRowBytes, kHeadBytes};
  spec.page_tokens = kPageTokens;
  spec.pages = pages;
  spec.heads = kShape.kv_heads;
  spec.dim = kShape.k_dim;
  const RopeTable rope({.kind = RopeKind::kNeox, .head_dim = 64, .rotary_dims = 64});
  const std::vector<uint8_t> layer_table(kShape.layers, 0);
  const RopeTables ropes = {{&rope, 1}, layer_table};
  const DeviceCache described = world.device->Describe(spec, ropes, 512).value();
  std::vector<int32_t> page_list(pages);
  std::iota(page_list.begin(), page_list.end(), 0);
  std::shuffle(page_list.begin(), page_list.end(), random.engine());

  const DeviceStream stream = world.device->CreateStream().value();
  ASSERT_TRUE(
      world.device->Copy(cache.data(), poison.data(), poison.size(), cuda::kHostToDevice, stream));
  const auto pins =
      world.arena->Get({{"tenant", kSampleFingerprint, kShape}, keys}, stream).value();
  std::vector<DeviceSpan> spans;
  std::vector<InjectSpan> reference;
  std::vector<std::vector<int64_t>> slots(kRecords);
  uint32_t at = random.Between(0U, kPageTokens);
  for (size_t i = 0; i < kRecords; ++i) {
    const auto& record = pins->records()[i];
    ASSERT_TRUE(record) << record.error().message;
    EXPECT_EQ(record->tier, Tier::kDisk);
    const auto count = static_cast<uint32_t>(record->tokens.size());
    const auto position = static_cast<int32_t>(100 + at);
    spans.push_back({.record = record->data,
                     .record_tokens = count,
                     .first = 0,
                     .tokens = count,
                     .position = position,
                     .page_token = at});
    for (uint32_t t = at; t < at + count; ++t) {
      slots[i].push_back(int64_t{page_list[t / kPageTokens]} * kPageTokens + t % kPageTokens);
    }
    reference.push_back({{kShape, count, samples[i].payload.data()},
                         {.tokens = count, .position = position, .slots = slots[i]}});
    at += count;
  }
  ASSERT_TRUE(world.device->Inject({.spans = spans, .pages = page_list}, described, stream));
  pins->Release();
  std::vector<std::byte> got(want.size());
  ASSERT_TRUE(
      world.device->Copy(got.data(), cache.data(), got.size(), cuda::kDeviceToHost, stream));
  ASSERT_TRUE(world.device->Synchronize(stream));
  ASSERT_TRUE(world.device->DestroyStream(stream));

  const CacheLayout layout = {k_base, v_base, spec.k, spec.v, kPageTokens, Dtype::kBF16};
  ASSERT_TRUE(InjectReference(reference, ropes, layout));
  ASSERT_FALSE(want == poison);
  for (size_t i = 0; i < want.size() / 2; ++i) {
    if (std::equal(&want[2 * i], &want[2 * i] + 2, &got[2 * i])) continue;
    // To a unit in the last place: the reference rounds a double.
    const double a = ReadElement(got.data(), Dtype::kBF16, i);
    const double b = ReadElement(want.data(), Dtype::kBF16, i);
    ASSERT_LE(std::abs(a - b), std::abs(b) * 0x1p-7 + 0x1p-20) << "element " << i;
  }
}

}  // namespace
}  // namespace inferscale
