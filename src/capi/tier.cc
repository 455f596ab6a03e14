// Tiers and leases.
#include "capi/call.h"
#include "capi/handles.h"
#include "inferscale/inferscale.h"

using namespace inferscale;
using namespace inferscale::capi;

int32_t inferscale_tier_open(inferscale_store* store, inferscale_device* device,
                             const inferscale_tier_options* options, inferscale_tier** out,
                             inferscale_error* error) {
  if (out != nullptr) *out = nullptr;
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(out, "out"));
    INFERSCALE_TRY(NotNull(store, "store"));
    INFERSCALE_ASSIGN(const inferscale_tier_options given, Sized(options, "options"));
    const KvTierOptions wanted = {
        .device = {.budget = given.device_bytes, .tenant_budget = given.tenant_device_bytes},
        .capture_bytes = given.capture_bytes};
    auto handle = std::make_unique<inferscale_tier>();
    INFERSCALE_ASSIGN(
        handle->tier,
        KvTier::Create(store->store, device == nullptr ? nullptr : device->device, wanted));
    handle->siblings = store->tiers;
    MutexLock lock(handle->siblings->mutex);
    handle->siblings->tiers.push_back(handle->tier.get());
    *out = handle.release();
    return {};
  });
}

void inferscale_tier_close(inferscale_tier* tier) {
  if (tier == nullptr) return;
  {
    MutexLock lock(tier->siblings->mutex);
    std::erase(tier->siblings->tiers, tier->tier.get());
  }
  delete tier;
}

int32_t inferscale_tier_flush(inferscale_tier* tier, inferscale_error* error) {
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(tier, "tier"));
    return tier->tier->Flush();
  });
}

namespace {

inferscale_stats ToStats(const KvTierStats& stats) {
  return {.size = sizeof(inferscale_stats),
          .reserved = 0,
          .device_bytes = stats.device.bytes,
          .device_budget = stats.device.budget,
          .device_pinned_bytes = stats.device.pinned_bytes,
          .device_hits = stats.device.hits,
          .device_loads = stats.device.loads,
          .device_loaded_bytes = stats.device.loaded_bytes,
          .device_evictions = stats.device.evictions,
          .host_bytes = stats.store.arena_bytes,
          .host_budget = stats.store.arena_budget,
          .host_pinned_bytes = stats.store.pinned_bytes,
          .host_hits = stats.store.arena_hits,
          .host_evictions = stats.store.evictions,
          .disk_reads = stats.store.disk_reads,
          .disk_bytes = stats.store.disk_bytes,
          .records = stats.store.records,
          .corrupt_records = stats.store.corrupt_records,
          .captures_stored = stats.captures.stored,
          .captures_failed = stats.captures.failed,
          .captures_waiting = stats.captures.waiting,
          .capture_bytes = stats.captures.bytes,
          .lease_wait_us = stats.lease_wait_us};
}

}  // namespace

int32_t inferscale_tier_stats(inferscale_tier* tier, inferscale_stats* out,
                              inferscale_error* error) {
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(tier, "tier"));
    INFERSCALE_TRY(NotNull(out, "out"));
    // What the caller's struct has no room for is left out.
    const uint32_t size = std::min<uint32_t>(out->size, sizeof(inferscale_stats));
    if (size < sizeof(size)) return Fail(Code::kInvalid, "out.size is {}", size);
    inferscale_stats stats = ToStats(tier->tier->stats());
    stats.size = size;
    std::memcpy(out, &stats, size);
    return {};
  });
}

int32_t inferscale_lease_open(inferscale_tier* tier, const inferscale_owner* owner,
                              const inferscale_key* keys, uint32_t count, inferscale_lease** out,
                              inferscale_error* error) {
  if (out != nullptr) *out = nullptr;
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(out, "out"));
    INFERSCALE_TRY(NotNull(tier, "tier"));
    INFERSCALE_ASSIGN(KvOwner whose, FromOwner(owner));
    INFERSCALE_ASSIGN(const auto given, Array(keys, count, "keys"));
    auto handle = std::make_unique<inferscale_lease>();
    handle->device = tier->tier->device();
    INFERSCALE_ASSIGN(handle->lease, tier->tier->Lease(std::move(whose), FromKeys(given)));
    *out = handle.release();
    return {};
  });
}

int32_t inferscale_lease_poll(inferscale_lease* lease, int32_t* codes, inferscale_error* error) {
  bool pending = false;
  const int32_t code = Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(lease, "lease"));
    pending = !lease->lease->IsSettled();
    if (pending || codes == nullptr) return {};
    for (size_t i = 0; i < lease->lease->size(); ++i) {
      const auto record = lease->lease->Record(i);
      codes[i] = record ? INFERSCALE_OK : static_cast<int32_t>(record.error().code);
    }
    return {};
  });
  return pending ? INFERSCALE_PENDING : code;
}

void inferscale_lease_close(inferscale_lease* lease) {
  if (lease == nullptr) return;
  // Records are let go on the device that they are on.
  if (lease->device != nullptr) (void)lease->device->Bind();
  delete lease;
}
