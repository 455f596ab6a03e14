#include "store/tier.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

namespace inferscale {

KvTier::KvTier(std::shared_ptr<KvStore> store, std::shared_ptr<Device> device, size_t readers)
    : store_(std::move(store)),
      device_(std::move(device)),
      readers_(std::make_shared<RecordReaders>(store_, readers)),
      loaders_(std::max<size_t>(readers, 1)) {}

Result<std::unique_ptr<KvTier>> KvTier::Create(std::shared_ptr<KvStore> store,
                                               std::shared_ptr<Device> device,
                                               const KvTierOptions& options) {
  std::unique_ptr<KvTier> tier(new KvTier(std::move(store), std::move(device), options.readers));
  if (tier->device_ != nullptr) {
    INFERSCALE_ASSIGN(tier->arena_,
                      DeviceArena::Create(tier->device_, tier->readers_, options.device));
  }
  INFERSCALE_ASSIGN(tier->captures_,
                    CaptureQueue::Create(tier->device_, tier->store_, options.capture_bytes));
  return tier;
}

KvTier::~KvTier() {
  stopping_ = true;
  loaders_.join();  // settles what is pending
  if (captures_ != nullptr) captures_->Stop();
}

Result<std::shared_ptr<KvLease>> KvTier::Lease(KvOwner owner, std::vector<Hash128> keys) {
  INFERSCALE_TRY(Bind());
  auto lease = std::make_shared<KvLease>(store_, arena_, std::move(owner), std::move(keys));
  if (lease->TakeResident()) {
    lease->Settle();
    return lease;
  }
  boost::asio::post(loaders_, [this, lease] { LoadLease(lease); });
  return lease;
}

void KvTier::LoadLease(const std::shared_ptr<KvLease>& lease) {
  // Nobody but this thread may have it any more: it was closed.
  if (!stopping_ && lease.use_count() > 1 && Bind()) {
    try {
      lease->Load(*readers_);
    } catch (const std::exception&) {
      // Out of memory: what was not loaded says so.
    }
  }
  lease_wait_us_ += static_cast<uint64_t>(lease->age_.Ms() * 1000);
  lease->Settle();
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
  stats.lease_wait_us = lease_wait_us_;
  return stats;
}

}  // namespace inferscale
