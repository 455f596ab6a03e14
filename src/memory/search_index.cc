#include "memory/search_index.h"

#include <list>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "memory/user_index.h"

namespace inferscale {
namespace {

// A user's place in the cache. Its mutex is held while the user is loaded, so that threads that
// want the same user load it once and others don't wait.
struct Entry {
  Mutex mutex;
  std::shared_ptr<const UserIndex> index GUARDED_BY(mutex);
};

// Least recently used users leave when the budget is exceeded.
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

  // `entry` has grown or shrunk to `bytes`. Ignored if it has left meanwhile: whoever loaded it
  // still uses it, once.
  void Resize(const Hash128& key, const std::shared_ptr<Entry>& entry, size_t bytes)
      EXCLUDES(mutex_) {
    // Freed outside of the lock.
    std::list<Slot> evicted;
    MutexLock lock(mutex_);
    const auto found = slots_.find(key);
    if (found == slots_.end() || found->second->entry != entry) return;
    used_ = used_ - found->second->bytes + bytes;
    found->second->bytes = bytes;
    while (used_ > budget_) {
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
  Cache cache;

  // The user's facts as they are now.
  Result<std::shared_ptr<const UserIndex>> Current(const std::string& tenant,
                                                   const std::string& user) {
    const Hash128 key = Hasher().Add(tenant).Add(user).Digest();
    const std::shared_ptr<Entry> entry = cache.Touch(key);
    MutexLock lock(entry->mutex);
    const int64_t now_ms = clock.NowMs();
    if (entry->index != nullptr) {
      INFERSCALE_ASSIGN(const int64_t generation, store.Generation(tenant, user));
      if (entry->index->IsCurrent(generation, now_ms)) return entry->index;
    }
    INFERSCALE_ASSIGN(entry->index, UserIndex::Load(store, tenant, user, embedder_id, now_ms));
    cache.Resize(key, entry, entry->index->memory_bytes());
    return entry->index;
  }
};

SearchIndex::SearchIndex(FactStore& store, const Clock& clock, const Hash128& embedder_id,
                         SearchIndexOptions options)
    : impl_(new Impl{store, clock, embedder_id, Cache(options.memory_bytes)}) {}

SearchIndex::~SearchIndex() = default;

Result<std::vector<SearchHit>> SearchIndex::Search(const SearchQuery& query) {
  if (query.scope.user.empty()) return Fail(Code::kInvalid, "a search needs a user");
  INFERSCALE_ASSIGN(const auto index, impl_->Current(query.scope.tenant, query.scope.user));
  return index->Search(query);
}

size_t SearchIndex::memory_bytes() const { return impl_->cache.used(); }

}  // namespace inferscale
