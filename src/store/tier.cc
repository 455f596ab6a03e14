#include "store/tier.h"

#include <exception>
#include <utility>

namespace inferscale {

Result<std::unique_ptr<KvTier>> KvTier::Create(std::shared_ptr<KvStore> store,
                                               std::shared_ptr<Device> device,
                                               const KvTierOptions& options) {
  std::unique_ptr<KvTier> tier(new KvTier(std::move(store), std::move(device)));
  if (tier->device_ != nullptr) {
    INFERSCALE_ASSIGN(tier->arena_,
                      DeviceArena::Create(tier->device_, tier->store_, options.device));
  }
  INFERSCALE_ASSIGN(tier->captures_,
                    CaptureQueue::Create(tier->device_, tier->store_, options.capture_bytes));
  tier->loader_ = std::thread([raw = tier.get()] { raw->LoadLeases(); });
  return tier;
}

KvTier::~KvTier() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (loader_.joinable()) loader_.join();
  if (captures_ != nullptr) captures_->Stop();
}

Result<std::shared_ptr<KvLease>> KvTier::Lease(KvOwner owner, std::vector<Hash128> keys) {
  INFERSCALE_TRY(Bind());
  auto lease = std::make_shared<KvLease>(store_, arena_, std::move(owner), std::move(keys));
  if (lease->TakeResident()) {
    lease->Settle();
    return lease;
  }
  MutexLock lock(mutex_);
  pending_.push_back(lease);
  changed_.NotifyAll();
  return lease;
}

void KvTier::LoadLeases() {
  (void)Bind();
  while (true) {
    std::shared_ptr<KvLease> lease;
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      while (pending_.empty() && !stopping_) changed_.Wait(mutex_);
      if (pending_.empty()) return;
      lease = std::move(pending_.front());
      pending_.pop_front();
      stopping = stopping_;
    }
    // Nobody but this thread may have it any more: it was closed.
    if (!stopping && lease.use_count() > 1) {
      try {
        lease->Load();
      } catch (const std::exception&) {
        // Out of memory: what was not loaded says so.
      }
    }
    {
      MutexLock lock(mutex_);
      lease_wait_us_ += static_cast<uint64_t>(lease->age_.Ms() * 1000);
    }
    lease->Settle();
  }
}

Result<std::unique_ptr<KvCapture>> KvTier::Capture(KvRecordInfo info) {
  INFERSCALE_TRY(Bind());
  return captures_->Begin(std::move(info));
}

void KvTier::Forget(std::span<const Hash128> keys) {
  if (arena_ != nullptr && Bind()) arena_->Forget(keys);
}

KvTierStats KvTier::stats() {
  KvTierStats stats;
  if (arena_ != nullptr && Bind()) stats.device = arena_->stats();
  stats.store = store_->stats();
  stats.captures = captures_->stats();
  MutexLock lock(mutex_);
  stats.lease_wait_us = lease_wait_us_;
  return stats;
}

}  // namespace inferscale
