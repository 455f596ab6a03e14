#include "world.h"

#include <dlfcn.h>

#include <chrono>
#include <stdexcept>
#include <thread>

namespace inferscale {

namespace {

void* EmulatedLibrary() {
  static void* const library = dlopen(INFERSCALE_EMULATED_CUDA, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

void Expect(int32_t code, const inferscale_error& error) {
  if (code != INFERSCALE_OK) throw std::runtime_error(error.message);
}

}  // namespace

const cuda::Plugin& EmulatedCuda() {
  const auto entry =
      reinterpret_cast<cuda::PluginEntry>(dlsym(EmulatedLibrary(), cuda::kPluginEntryName));
  return *entry(cuda::kPluginAbi);
}

void SetRules(const EmulatedRules& rules) {
  using Setter = void (*)(const EmulatedRules*);
  reinterpret_cast<Setter>(dlsym(EmulatedLibrary(), "inferscale_emulated_rules"))(&rules);
}

World::World(Place where, Budgets budgets) : place(where), budgets_(budgets) {
  if (place == Place::kDevice) {
    SetRules({.lazy = true, .seed = TestSeed()});
    inferscale_device* opened = nullptr;
    Expect(inferscale_device_open(0, INFERSCALE_EMULATED_CUDA, &opened, &error), error);
    device.reset(opened);
    void* made = nullptr;
    if (EmulatedCuda().stream_create(&made) != 0) throw std::runtime_error("stream");
    stream = reinterpret_cast<intptr_t>(made);
  }
  Reopen();
}

World::~World() {
  tier = nullptr;
  store = nullptr;
  if (place == Place::kDevice) {
    // Nothing waits for the streams of a test that went wrong.
    SetRules({});
    (void)EmulatedCuda().stream_destroy(reinterpret_cast<void*>(stream));
  }
}

StoreHandle World::OpenStore() {
  const std::string dir = kv_dir();
  inferscale_store_options options = {};
  options.size = sizeof(options);
  options.dir = dir.c_str();
  options.host_bytes = budgets_.host;
  options.device = device.get();
  inferscale_store* opened = nullptr;
  Expect(inferscale_store_open(&options, &opened, &error), error);
  return StoreHandle(opened);
}

void World::Reopen() {
  tier = nullptr;
  store = nullptr;
  store = OpenStore();
  inferscale_tier_options options = {};
  options.size = sizeof(options);
  options.device_bytes = budgets_.device;
  options.capture_bytes = budgets_.capture;
  inferscale_tier* opened = nullptr;
  Expect(inferscale_tier_open(store.get(), device.get(), &options, &opened, &error), error);
  tier.reset(opened);
}

void World::Sync() {
  if (place == Place::kDevice) {
    ASSERT_EQ(EmulatedCuda().stream_synchronize(reinterpret_cast<void*>(stream)), 0);
  }
}

std::vector<int32_t> World::Settle(inferscale_lease* lease, size_t count) {
  std::vector<int32_t> codes(count, -1);
  while (true) {
    inferscale_error poll_error = {};
    const int32_t code = inferscale_lease_poll(lease, codes.data(), &poll_error);
    if (code != INFERSCALE_PENDING) {
      EXPECT_EQ(code, INFERSCALE_OK) << poll_error.message;
      return codes;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

LeaseHandle World::Lease(const inferscale_owner& owner, const std::vector<inferscale_key>& keys) {
  inferscale_lease* lease = nullptr;
  inferscale_error lease_error = {};
  EXPECT_EQ(inferscale_lease_open(tier.get(), &owner, keys.data(),
                                  static_cast<uint32_t>(keys.size()), &lease, &lease_error),
            INFERSCALE_OK)
      << lease_error.message;
  return LeaseHandle(lease);
}

inferscale_stats World::Stats() {
  inferscale_stats stats = {};
  stats.size = sizeof(stats);
  EXPECT_EQ(inferscale_tier_stats(tier.get(), &stats, &error), INFERSCALE_OK) << error.message;
  return stats;
}

}  // namespace inferscale
