#include "memory/search_index.h"

#include <list>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "memory/user_index.h"

namespace inferscale {
namespace {

// A user's place in the cache.
struct Entry {
  Mutex mutex;
  UserIndex index GUARDED_BY(mutex);
};

// Least recently used users leave when the budget is exceeded, but never the last one.
class Cache {
 public:
  explicit Cache(size_t budget) : budget_(budget) {}

  std::shared_ptr<Entry> Touch(const Hash128& key) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = slots_.find(key);
    if (found != slots_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      return found->second->entry;
    }
    recent_.push_front({key, std::make_shared<Entry>(), 0});
    slots_.emplace(key, recent_.begin());
    return recent_.front().entry;
  }

  void Forget(const Hash128& key) EXCLUDES(mutex_) {
    std::list<Slot> gone;  // freed outside of the lock
    MutexLock lock(mutex_);
    const auto found = slots_.find(key);
    if (found == slots_.end()) return;
    used_ -= found->second->bytes;
    gone.splice(gone.end(), recent_, found->second);
    slots_.erase(found);
  }

  // `entry` now takes `bytes`. Ignored if it has left meanwhile: whoever is searching it still
  // holds it, for that one search.
  void Resize(const Hash128& key, const std::shared_ptr<Entry>& entry, size_t bytes)
      EXCLUDES(mutex_) {
    // Freed outside of the lock.
    std::list<Slot> evicted;
    MutexLock lock(mutex_);
    const auto found = slots_.find(key);
    if (found == slots_.end() || found->second->entry != entry) return;
    used_ = used_ - found->second->bytes + bytes;
    found->second->bytes = bytes;
    while (used_ > budget_ && recent_.size() > 1) {
      used_ -= recent_.back().bytes;
      slots_.erase(recent_.back().key);
      evicted.splice(evicted.end(), recent_, std::prev(recent_.end()));
    }
  }

  size_t used() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return used_;
  }

 private:
  struct Slot {
    Hash128 key;
    std::shared_ptr<Entry> entry;
    size_t bytes;
  };

  const size_t budget_;
  mutable Mutex mutex_;
  std::list<Slot> recent_ GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<Hash128, std::list<Slot>::iterator> slots_ GUARDED_BY(mutex_);
  size_t used_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

struct SearchIndex::Impl {
  FactStore& store;
  const Clock& clock;
  const Hash128 embedder_id;
  const SearchIndexOptions options;
  Cache cache{options.memory_bytes};
};

SearchIndex::SearchIndex(FactStore& store, const Clock& clock, const Hash128& embedder_id,
                         SearchIndexOptions options)
    // Members are made in their order, so `cache` reads the options that have moved in.
    : impl_(new Impl{store, clock, embedder_id, std::move(options)}) {}

SearchIndex::~SearchIndex() = default;

Result<std::vector<SearchHit>> SearchIndex::Search(const SearchQuery& query) {
  const auto& [tenant, user, agent, run] = query.scope;
  const Hash128 key = OwnerHash(tenant, user);
  const std::shared_ptr<Entry> entry = impl_->cache.Touch(key);
  MutexLock lock(entry->mutex);
  UserIndex& index = entry->index;
  INFERSCALE_ASSIGN(const bool changed, index.Refresh(impl_->store, tenant, user,
                                                      impl_->embedder_id, impl_->clock.NowMs()));
  if (changed && impl_->options.on_change) impl_->options.on_change(tenant, user);
  impl_->cache.Resize(key, entry, index.MemoryBytes());
  return index.Search(query);
}

void SearchIndex::Forget(const std::string& tenant, const std::string& user) {
  impl_->cache.Forget(OwnerHash(tenant, user));
}

size_t SearchIndex::memory_bytes() const { return impl_->cache.used(); }

}  // namespace inferscale
