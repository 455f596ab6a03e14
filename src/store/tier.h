// Records at hand: what an engine's connector needs of the store and of a device together. Leases
// bring records in, captures take new ones to the disk; both without making the caller wait.
#ifndef INFERSCALE_STORE_TIER_H_
#define INFERSCALE_STORE_TIER_H_

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "store/capture_queue.h"
#include "store/device_arena.h"
#include "store/kv_store.h"
#include "store/lease.h"
#include "store/record_readers.h"

namespace inferscale {

struct KvTierOptions {
  DeviceArenaOptions device;  // of no use without one
  uint64_t capture_bytes = 0;
  size_t readers = 4;  // threads that read the disk, and leases that are loaded at a time
};

struct KvTierStats {
  DeviceArenaStats device;
  KvStoreStats store;
  CaptureStats captures;
  uint64_t lease_wait_us = 0;  // together, of leases that were not settled at once
};

// Thread-safe. Calls make the device the calling thread's. A lease or capture that outlives its
// tier is harmless, but of no use.
class KvTier {
 public:
  // `device` may be null: then records are leased in the store's host arena. kExhausted if there is
  // no such memory.
  static Result<std::unique_ptr<KvTier>> Create(std::shared_ptr<KvStore> store,
                                                std::shared_ptr<Device> device,
                                                const KvTierOptions& options);
  // Waits until what was committed is stored.
  ~KvTier();
  KvTier(const KvTier&) = delete;
  KvTier& operator=(const KvTier&) = delete;

  // Records on the device, or without one in host memory, are held on return; copies of those in
  // host memory to the device have begun. What is only on disk is read by threads, and the lease
  // is pending until then.
  Result<std::shared_ptr<KvLease>> Lease(KvOwner owner, std::vector<Hash128> keys);

  // CaptureQueue::Begin's and Flush's contracts. KvCapture::Commit commits.
  Result<std::unique_ptr<KvCapture>> Capture(KvRecordInfo info);
  Status Flush() { return captures_->Flush(); }

  // After KvStore::Erase: DeviceArena::Forget's contract.
  void Forget(std::span<const Hash128> keys);
  KvTierStats stats();
  const std::shared_ptr<Device>& device() const { return device_; }  // null without one

 private:
  KvTier(std::shared_ptr<KvStore> store, std::shared_ptr<Device> device, size_t readers);
  Status Bind() { return device_ == nullptr ? Status{} : device_->Bind(); }
  void LoadLease(const std::shared_ptr<KvLease>& lease);

  const std::shared_ptr<KvStore> store_;
  const std::shared_ptr<Device> device_;
  const std::shared_ptr<RecordReaders> readers_;
  std::shared_ptr<DeviceArena> arena_;  // these two are set before the tier is shared
  std::shared_ptr<CaptureQueue> captures_;
  std::atomic<uint64_t> lease_wait_us_ = 0;
  std::atomic<bool> stopping_ = false;
  boost::asio::thread_pool loaders_;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_TIER_H_
