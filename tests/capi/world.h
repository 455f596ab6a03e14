// A store and a tier through the C interface, in host memory or on an emulated device whose streams
// lag behind.
#ifndef INFERSCALE_TESTS_CAPI_WORLD_H_
#define INFERSCALE_TESTS_CAPI_WORLD_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../kv/seed.h"
#include "../ops/emulated_streams.h"
#include "../store/sample.h"
#include "base/c_deleter.h"
#include "inferscale/inferscale.h"
#include "ops/cuda/plugin.h"

namespace inferscale {

using DeviceHandle = std::unique_ptr<inferscale_device, CDeleter<inferscale_device_close>>;
using StoreHandle = std::unique_ptr<inferscale_store, CDeleter<inferscale_store_close>>;
using TierHandle = std::unique_ptr<inferscale_tier, CDeleter<inferscale_tier_close>>;
using LeaseHandle = std::unique_ptr<inferscale_lease, CDeleter<inferscale_lease_close>>;
using CacheHandle = std::unique_ptr<inferscale_cache, CDeleter<inferscale_cache_close>>;

enum class Place : uint8_t { kHost, kDevice };

inline inferscale_key Key(uint64_t n) {
  inferscale_key key = {};
  std::memcpy(key.bytes, &n, sizeof(n));
  key.bytes[15] = 1;
  return key;
}

// What the emulated plug-in offers besides.
const cuda::Plugin& EmulatedCuda();
void SetRules(const EmulatedRules& rules);

class World {
 public:
  struct Budgets {
    uint64_t host = 1 << 22, device = 1 << 22, capture = 1 << 22;
  };

  World(Place where, Budgets budgets);
  explicit World(Place where) : World(where, Budgets()) {}
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Records are on the disk only then.
  void Reopen();
  void Sync();
  // Another handle on the same directory, as another process would have.
  StoreHandle OpenStore();

  inferscale_owner Owner(const inferscale_shape& shape, const char* tenant = "tenant") const {
    return {tenant, Key(7), shape};
  }
  // Polls until it is settled. The codes of the records.
  std::vector<int32_t> Settle(inferscale_lease* lease, size_t count);
  LeaseHandle Lease(const inferscale_owner& owner, const std::vector<inferscale_key>& keys);
  inferscale_stats Stats();

  const Place place;
  DeviceHandle device;  // null in host memory
  StoreHandle store;
  TierHandle tier;
  intptr_t stream = 0;
  inferscale_error error = {};  // of the last call that was given it

  std::string kv_dir() const { return dir_.path() + "/kv"; }

 private:
  TempDir dir_{TempDir::Where::kMemory};
  Budgets budgets_;
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_CAPI_WORLD_H_
