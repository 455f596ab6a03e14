// A store and a device arena over it, on an emulated device whose streams lag behind.
#ifndef INFERSCALE_TESTS_STORE_DEVICE_WORLD_H_
#define INFERSCALE_TESTS_STORE_DEVICE_WORLD_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../kv/seed.h"
#include "emulated_plugin.h"
#include "emulated_streams.h"
#include "sample.h"
#include "store/device_arena.h"

namespace inferscale {

class DeviceWorld {
 public:
  explicit DeviceWorld(const DeviceArenaOptions& options, uint64_t host_bytes = 1 << 20)
      : options_(options) {
    SetEmulatedRules({.lazy = true, .seed = TestSeed()});
    device = Device::Open(0, EmulatedPlugin()).value();
    store_options = SampleOptions(dir_.path() + "/kv");
    store_options.arena_bytes = host_bytes;
    store_options.arena_slab = PinnedSlab(device);
    Reopen();
  }
  // Nothing waits for the streams of a test that went wrong.
  ~DeviceWorld() { SetEmulatedRules({}); }

  // Records are on the disk only then.
  void Reopen() {
    arena = nullptr;
    store = nullptr;
    store = KvStore::Open(SystemEnv(), clock_, store_options).value();
    const auto readers = std::make_shared<RecordReaders>(store, TestSeed() % 4);
    arena = DeviceArena::Create(device, readers, options_).value();
  }

  std::shared_ptr<Device> device;
  KvStoreOptions store_options;
  std::shared_ptr<KvStore> store;
  std::shared_ptr<DeviceArena> arena;

 private:
  TempDir dir_{TempDir::Where::kMemory};
  SystemClock clock_;
  DeviceArenaOptions options_;
};

// A stream that reads records, and what it should find.
class DeviceReader {
 public:
  explicit DeviceReader(Device& device) : device_(device), stream_(device.CreateStream().value()) {}
  ~DeviceReader() { (void)device_.DestroyStream(stream_); }
  DeviceReader(const DeviceReader&) = delete;
  DeviceReader& operator=(const DeviceReader&) = delete;

  DeviceStream stream() const { return stream_; }

  // Queues a read, as a kernel would.
  bool Read(const DeviceKv& kv, const Sample& want) {
    if (kv.shape != want.info.shape ||
        !std::equal(kv.tokens.begin(), kv.tokens.end(), want.info.tokens.begin(),
                    want.info.tokens.end())) {
      ADD_FAILURE() << "tokens or shape of another record";
      return false;
    }
    auto got = std::make_unique<std::vector<std::byte>>(want.payload.size());
    if (!device_.Copy(got->data(), kv.data, got->size(), cuda::kDeviceToHost, stream_)) {
      return false;
    }
    reads_.emplace_back(std::move(got), &want);
    return true;
  }

  // What was read since the last time. `want` must live until then.
  void Check() {
    ASSERT_TRUE(device_.Synchronize(stream_));
    for (const auto& [got, want] : reads_) {
      EXPECT_TRUE(*got == want->payload) << "wrong bytes of record " << want->info.key.high;
    }
    reads_.clear();
  }

 private:
  Device& device_;
  DeviceStream stream_;
  std::vector<std::pair<std::unique_ptr<std::vector<std::byte>>, const Sample*>> reads_;
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_STORE_DEVICE_WORLD_H_
