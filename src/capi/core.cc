// Version, hashes, devices and stores.
#include <algorithm>

#include "base/clock.h"
#include "capi/call.h"
#include "capi/handles.h"
#include "inferscale/inferscale.h"

using namespace inferscale;
using namespace inferscale::capi;

uint32_t inferscale_abi_version(void) { return INFERSCALE_ABI_VERSION; }

const char* inferscale_version(void) { return INFERSCALE_VERSION; }

void inferscale_hash(const inferscale_field* fields, uint32_t count, inferscale_key* out) {
  if (out == nullptr) return;
  *out = {};
  if (fields == nullptr && count != 0) return;
  Hasher hasher;
  for (uint32_t i = 0; i < count; ++i) {
    if (fields[i].data == nullptr && fields[i].bytes != 0) return;
    hasher.AddBytes({static_cast<const std::byte*>(fields[i].data), fields[i].bytes});
  }
  *out = ToKey(hasher.Digest());
}

int32_t inferscale_device_open(int32_t ordinal, const char* plugin, inferscale_device** out,
                               inferscale_error* error) {
  if (out != nullptr) *out = nullptr;
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(out, "out"));
    if (ordinal < 0) return Fail(Code::kInvalid, "device {}", ordinal);
    INFERSCALE_ASSIGN(auto device, Device::Open(ordinal, plugin == nullptr ? "" : plugin));
    *out = new inferscale_device{std::move(device)};
    return {};
  });
}

void inferscale_device_close(inferscale_device* device) { delete device; }

int32_t inferscale_store_open(const inferscale_store_options* options, inferscale_store** out,
                              inferscale_error* error) {
  if (out != nullptr) *out = nullptr;
  return Call(error, [&]() -> Status {
    static const SystemClock kClock;
    INFERSCALE_TRY(NotNull(out, "out"));
    INFERSCALE_ASSIGN(const inferscale_store_options given, Sized(options, "options"));
    INFERSCALE_TRY(NotNull(given.dir, "options.dir"));
    KvStoreOptions wanted;
    wanted.dir = given.dir;
    wanted.arena_bytes = given.host_bytes;
    wanted.tenant_arena_bytes = given.tenant_host_bytes;
    wanted.disk_bytes = given.disk_bytes;
    wanted.tenant_disk_bytes = given.tenant_disk_bytes;
    if (given.device != nullptr) wanted.arena_slab = PinnedSlab(given.device->device);
    INFERSCALE_ASSIGN(std::shared_ptr<KvStore> store,
                      KvStore::Open(SystemEnv(), kClock, std::move(wanted)));
    *out = new inferscale_store{std::move(store), std::make_shared<TierList>()};
    return {};
  });
}

void inferscale_store_close(inferscale_store* store) { delete store; }

int32_t inferscale_store_verify(inferscale_store* store, const inferscale_owner* owner,
                                const inferscale_claim* claims, uint32_t count, int32_t* codes,
                                inferscale_error* error) {
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(store, "store"));
    INFERSCALE_ASSIGN(const KvOwner whose, FromOwner(owner));
    INFERSCALE_ASSIGN(const auto given, Array(claims, count, "claims"));
    INFERSCALE_ASSIGN(const auto results, Array(codes, count, "codes"));
    std::vector<KvClaim> asked;
    asked.reserve(given.size());
    for (const inferscale_claim& claim : given) {
      INFERSCALE_ASSIGN(const auto expected, Array(claim.expected, claim.tokens, "claim.expected"));
      asked.push_back({FromKey(claim.key), claim.record_token, expected});
    }
    const std::vector<Status> verdicts = store->store->Check(whose, asked);
    std::transform(verdicts.begin(), verdicts.end(), results.begin(), [](const Status& verdict) {
      return verdict ? INFERSCALE_OK : static_cast<int32_t>(verdict.error().code);
    });
    return {};
  });
}

int32_t inferscale_store_erase(inferscale_store* store, const inferscale_key* keys, uint32_t count,
                               inferscale_error* error) {
  return Call(error, [&]() -> Status {
    INFERSCALE_TRY(NotNull(store, "store"));
    INFERSCALE_ASSIGN(const auto given, Array(keys, count, "keys"));
    const std::vector<Hash128> erased = FromKeys(given);
    INFERSCALE_TRY(store->store->Erase(erased));
    MutexLock lock(store->tiers->mutex);
    for (KvTier* tier : store->tiers->tiers) tier->Forget(erased);
    return {};
  });
}
