// What the handles of the C interface are.
#ifndef INFERSCALE_CAPI_HANDLES_H_
#define INFERSCALE_CAPI_HANDLES_H_

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "capi/paged_cache.h"
#include "inferscale/inferscale.h"
#include "ops/device.h"
#include "store/tier.h"

namespace inferscale::capi {

// The tiers over a store, which are told what is erased.
struct TierList {
  Mutex mutex;
  std::vector<KvTier*> tiers GUARDED_BY(mutex);
};

}  // namespace inferscale::capi

struct inferscale_device {
  std::shared_ptr<inferscale::Device> device;
};

struct inferscale_store {
  std::shared_ptr<inferscale::KvStore> store;
  std::shared_ptr<inferscale::capi::TierList> tiers;
};

struct inferscale_tier {
  std::unique_ptr<inferscale::KvTier> tier;
  std::shared_ptr<inferscale::capi::TierList> siblings;  // it is one of them
};

struct inferscale_lease {
  std::shared_ptr<inferscale::Device> device;  // null without one
  std::shared_ptr<inferscale::KvLease> lease;
};

struct inferscale_cache {
  std::unique_ptr<inferscale::capi::PagedCache> cache;
};

struct inferscale_capture {
  std::unique_ptr<inferscale::KvCapture> capture;
};

#endif  // INFERSCALE_CAPI_HANDLES_H_
