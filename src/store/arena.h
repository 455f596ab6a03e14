// The host tier: one slab of memory with a hard budget, holding whole records that are in use or
// were lately.
#ifndef INFERSCALE_STORE_ARENA_H_
#define INFERSCALE_STORE_ARENA_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "store/arena_policy.h"
#include "store/kv_store.h"
#include "store/slab_allocator.h"

namespace inferscale {

struct ArenaStats {
  uint64_t bytes = 0;
  uint64_t budget = 0;
  uint64_t pinned_bytes = 0;
  uint64_t hits = 0;
  uint64_t evictions = 0;
  bool slab_refused = false;
};

// Thread-safe. Pins and slots keep the arena alive.
class Arena : public std::enable_shared_from_this<Arena> {
 private:
  struct Entry;

 public:
  // The slab is `source`'s. Without one, or if it has none, it is address space only: memory is
  // taken when records come in. kTransient if the system refuses that.
  static Result<std::shared_ptr<Arena>> Create(uint64_t budget, uint64_t tenant_budget,
                                               const SlabSource& source = {});
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Room for one record that one thread fills. Others who want the record wait for it; if this goes
  // unpublished they look again.
  class Slot {
   public:
    Slot(std::shared_ptr<Arena> arena, Entry* entry, MutableByteSpan bytes)
        : arena_(std::move(arena)), entry_(entry), bytes_(bytes) {}
    ~Slot();
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

    MutableByteSpan bytes() const { return bytes_; }
    // Nothing if the record was forgotten in the meantime. At most once.
    std::shared_ptr<const PinnedKv> Publish(KvRecordInfo info);

   private:
    std::shared_ptr<Arena> arena_;
    Entry* entry_;
    MutableByteSpan bytes_;
  };

  // Rises whenever something is forgotten. Read it before asking the catalog: what the catalog said
  // then may be stale if the epoch is another one now.
  uint64_t epoch();

  // One of: the record, pinned (waits while a thread fills it); a slot to fill; neither, if the
  // epoch is not `epoch` any more or the filling failed, so the caller asks the catalog again.
  // kExhausted if pins leave no room for `bytes` of `tenant`.
  struct Acquired {
    std::shared_ptr<const PinnedKv> pin;
    std::unique_ptr<Slot> slot;
  };
  Result<Acquired> Acquire(const Hash128& key, const std::string& tenant, uint64_t bytes,
                           uint64_t epoch);

  // Pins those that are there and whole; null for the others.
  std::vector<std::shared_ptr<const PinnedKv>> Hold(std::span<const Hash128> keys);

  // The records can't be found any more; the bytes of those that are pinned go with the last pin.
  void Forget(std::span<const Hash128> keys);
  std::vector<Hash128> Keys();
  ArenaStats stats();

 private:
  class Pin;

  Arena(std::shared_ptr<std::byte> slab, uint64_t budget, uint64_t tenant_budget,
        uint64_t page_bytes);
  std::shared_ptr<const PinnedKv> MakePin(Entry* entry, Tier tier);
  void Unpin(Entry* entry);
  std::shared_ptr<const PinnedKv> Publish(Entry* entry, KvRecordInfo info);
  void Abandon(Entry* entry);
  Result<uint64_t> MakeRoom(const std::string& tenant, uint64_t bytes) REQUIRES(mutex_);
  void Evict(ArenaPolicy::Id id) REQUIRES(mutex_);
  void Release(Entry* entry) REQUIRES(mutex_);
  void Hide(Entry* entry) REQUIRES(mutex_);

  const std::shared_ptr<std::byte> slab_;
  const uint64_t page_bytes_;
  bool from_source_ = false;  // these two are set before the arena is shared
  bool slab_refused_ = false;
  Mutex mutex_;
  CondVar filled_;
  ArenaPolicy policy_ GUARDED_BY(mutex_);
  SlabAllocator allocator_ GUARDED_BY(mutex_);
  std::unordered_map<ArenaPolicy::Id, std::unique_ptr<Entry>> entries_ GUARDED_BY(mutex_);
  std::unordered_map<Hash128, Entry*> index_ GUARDED_BY(mutex_);  // those that can be found
  ArenaPolicy::Id next_id_ GUARDED_BY(mutex_) = 1;
  uint64_t epoch_ GUARDED_BY(mutex_) = 0;
  uint64_t hits_ GUARDED_BY(mutex_) = 0;
  uint64_t evictions_ GUARDED_BY(mutex_) = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_ARENA_H_
