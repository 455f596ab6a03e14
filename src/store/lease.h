// Records held where an engine reads them: on the device, or without one in the host arena.
#ifndef INFERSCALE_STORE_LEASE_H_
#define INFERSCALE_STORE_LEASE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kv/fact_kv.h"
#include "store/device_arena.h"
#include "store/kv_store.h"

namespace inferscale {

// Made by KvTier. While it lives, and until the work that was given to streams with it has passed,
// the records stay in place. For one thread at a time.
class KvLease {
 public:
  KvLease(std::shared_ptr<KvStore> store, std::shared_ptr<DeviceArena> arena, KvOwner owner,
          std::vector<Hash128> keys);
  KvLease(const KvLease&) = delete;
  KvLease& operator=(const KvLease&) = delete;

  const KvOwner& owner() const { return owner_; }
  size_t size() const { return keys_.size(); }
  bool is_on_device() const { return arena_ != nullptr; }

  // Pending until then. It stays settled.
  bool IsSettled() const { return settled_.load(std::memory_order_acquire); }
  // Of a settled lease. Device memory if it is on the device; then Await first. Errors are
  // DeviceArena::Load's, without a device KvStore::Get's; kCancelled if the tier ended before.
  Result<FactKvView> Record(size_t i) const;
  // Work that `stream` is given from now on may read the records. Streams live until the lease
  // ends.
  Status Await(DeviceStream stream);

 private:
  friend class KvTier;
  DeviceRequest Request() const { return {owner_, keys_}; }
  // Takes what is at hand. True if that is all.
  bool TakeResident();
  // Brings the rest in, and waits for it.
  void Load(RecordReaders& readers);
  void Settle() { settled_.store(true, std::memory_order_release); }

  const std::shared_ptr<KvStore> store_;
  const std::shared_ptr<DeviceArena> arena_;  // null without a device
  const KvOwner owner_;
  const std::vector<Hash128> keys_;
  const Stopwatch age_;
  // One of the two, written by whoever loads until it is settled.
  std::shared_ptr<DevicePins> device_pins_;
  std::vector<Result<std::shared_ptr<const PinnedKv>>> host_pins_;
  std::atomic<bool> settled_ = false;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_LEASE_H_
