#include "store/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace inferscale {

struct Arena::Entry {
  ArenaPolicy::Id id = 0;
  Hash128 key;
  uint64_t offset = 0;
  uint64_t slot_bytes = 0;
  KvRecordInfo info;       // set once, before the first pin is made
  bool ready = false;      // a thread is still filling it
  bool forgotten = false;  // goes with its last pin, and its bytes are wiped
};

class Arena::Pin final : public PinnedKv {
 public:
  Pin(std::shared_ptr<Arena> arena, Entry* entry, Tier tier)
      : arena_(std::move(arena)), entry_(entry), tier_(tier) {}
  ~Pin() override { arena_->Unpin(entry_); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

  FactKvView view() const override {
    return {entry_->info.shape, static_cast<uint32_t>(entry_->info.tokens.size()),
            arena_->slab_.get() + entry_->offset};
  }
  std::span<const Token> tokens() const override { return entry_->info.tokens; }
  const std::string& tenant() const override { return entry_->info.tenant; }
  Tier tier() const override { return tier_; }

 private:
  std::shared_ptr<Arena> arena_;
  Entry* entry_;
  Tier tier_;
};

namespace {

Result<std::shared_ptr<std::byte>> AddressSpace(uint64_t bytes) {
  void* slab = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (slab == MAP_FAILED) {
    return Fail(Code::kTransient, "reserve an arena of {} bytes: {}", bytes,
                std::generic_category().message(errno));
  }
  // Fewer page faults while records come in; only a wish.
  (void)::madvise(slab, bytes, MADV_HUGEPAGE);
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(slab),
                                    [bytes](std::byte* data) { ::munmap(data, bytes); });
}

}  // namespace

Result<std::shared_ptr<Arena>> Arena::Create(uint64_t budget, uint64_t tenant_budget,
                                             const SlabSource& source) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  budget = budget / page * page;
  std::shared_ptr<std::byte> slab;
  if (budget != 0 && source) slab = source(budget).value_or(nullptr);
  const bool from_source = slab != nullptr;
  if (budget != 0 && !from_source) {
    INFERSCALE_ASSIGN(slab, AddressSpace(budget));
  }
  std::shared_ptr<Arena> arena(new Arena(std::move(slab), budget, tenant_budget, page));
  arena->from_source_ = from_source;
  arena->slab_refused_ = budget != 0 && source && !from_source;
  return arena;
}

Arena::Arena(std::shared_ptr<std::byte> slab, uint64_t budget, uint64_t tenant_budget,
             uint64_t page_bytes)
    : slab_(std::move(slab)),
      page_bytes_(page_bytes),
      policy_(budget, tenant_budget),
      allocator_(budget) {}

Arena::Slot::~Slot() {
  if (entry_ != nullptr) arena_->Abandon(entry_);
}

std::shared_ptr<const PinnedKv> Arena::Slot::Publish(KvRecordInfo info) {
  return arena_->Publish(std::exchange(entry_, nullptr), std::move(info));
}

uint64_t Arena::epoch() {
  MutexLock lock(mutex_);
  return epoch_;
}

Result<Arena::Acquired> Arena::Acquire(const Hash128& key, const std::string& tenant,
                                       uint64_t bytes, uint64_t epoch) {
  MutexLock lock(mutex_);
  bool waited = false;
  while (true) {
    if (epoch_ != epoch) return Acquired{};
    const auto found = index_.find(key);
    if (found == index_.end()) break;
    if (found->second->ready) {
      ++hits_;
      policy_.Pin(found->second->id);
      return Acquired{MakePin(found->second, Tier::kHost), nullptr};
    }
    waited = true;
    filled_.Wait(mutex_);
  }
  // The other thread found the record damaged, or the system refused it.
  if (waited) return Acquired{};

  const uint64_t slot_bytes = (bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  INFERSCALE_ASSIGN(const uint64_t offset, MakeRoom(tenant, slot_bytes));
  auto entry = std::make_unique<Entry>();
  entry->id = next_id_++;
  entry->key = key;
  entry->offset = offset;
  entry->slot_bytes = slot_bytes;
  policy_.Add(entry->id, tenant, slot_bytes);
  Entry* raw = entry.get();
  index_[key] = raw;
  entries_.emplace(raw->id, std::move(entry));
  return Acquired{nullptr, std::make_unique<Slot>(shared_from_this(), raw,
                                                  MutableByteSpan(slab_.get() + offset, bytes))};
}

std::vector<std::shared_ptr<const PinnedKv>> Arena::Hold(std::span<const Hash128> keys) {
  std::vector<std::shared_ptr<const PinnedKv>> pins(keys.size());
  MutexLock lock(mutex_);
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto found = index_.find(keys[i]);
    if (found == index_.end() || !found->second->ready) continue;
    ++hits_;
    policy_.Pin(found->second->id);
    pins[i] = MakePin(found->second, Tier::kHost);
  }
  return pins;
}

Result<uint64_t> Arena::MakeRoom(const std::string& tenant, uint64_t bytes) {
  while (true) {
    const ArenaPolicy::Decision decision = policy_.Admit(tenant, bytes);
    if (decision.room == ArenaPolicy::Room::kFull) {
      return Fail(Code::kExhausted, "arena of {} bytes, {} of them pinned, has no room for {}",
                  policy_.budget(), policy_.pinned_bytes(), bytes);
    }
    if (decision.room == ArenaPolicy::Room::kFits) break;
    Evict(decision.victim);
  }
  // There is room, but it may be in pieces.
  while (true) {
    if (const auto offset = allocator_.Allocate(bytes)) return *offset;
    const auto victim = policy_.Oldest();
    if (!victim) {
      return Fail(Code::kExhausted, "pinned records leave no {} bytes together in the arena",
                  bytes);
    }
    Evict(*victim);
  }
}

void Arena::Evict(ArenaPolicy::Id id) {
  ++evictions_;
  Entry* entry = entries_.at(id).get();
  Hide(entry);
  Release(entry);
}

void Arena::Hide(Entry* entry) {
  if (const auto found = index_.find(entry->key); found != index_.end() && found->second == entry) {
    index_.erase(found);
  }
}

void Arena::Release(Entry* entry) {
  // The next owner of the place overwrites it; what was erased must not wait for that.
  if (entry->forgotten) {
    std::byte* place = slab_.get() + entry->offset;
    // Whoever owns the memory may not let pages go.
    if (from_source_) {
      std::memset(place, 0, entry->slot_bytes);
    } else {
      (void)::madvise(place, entry->slot_bytes, MADV_DONTNEED);
    }
  }
  allocator_.Free(entry->offset, entry->slot_bytes);
  policy_.Remove(entry->id);
  entries_.erase(entry->id);
}

std::shared_ptr<const PinnedKv> Arena::MakePin(Entry* entry, Tier tier) {
  return std::make_shared<Pin>(shared_from_this(), entry, tier);
}

void Arena::Unpin(Entry* entry) {
  MutexLock lock(mutex_);
  policy_.Unpin(entry->id);
  if (entry->forgotten && !policy_.IsPinned(entry->id)) Release(entry);
}

std::shared_ptr<const PinnedKv> Arena::Publish(Entry* entry, KvRecordInfo info) {
  MutexLock lock(mutex_);
  filled_.NotifyAll();
  if (entry->forgotten) {
    Release(entry);
    return nullptr;
  }
  entry->info = std::move(info);
  entry->ready = true;
  return MakePin(entry, Tier::kDisk);  // takes over the pin of the slot
}

void Arena::Abandon(Entry* entry) {
  MutexLock lock(mutex_);
  filled_.NotifyAll();
  Hide(entry);
  Release(entry);
}

void Arena::Forget(std::span<const Hash128> keys) {
  MutexLock lock(mutex_);
  ++epoch_;
  for (const Hash128& key : keys) {
    const auto found = index_.find(key);
    if (found == index_.end()) continue;
    Entry* entry = found->second;
    index_.erase(found);
    entry->forgotten = true;
    if (!policy_.IsPinned(entry->id)) Release(entry);
  }
  filled_.NotifyAll();
}

std::vector<Hash128> Arena::Keys() {
  MutexLock lock(mutex_);
  std::vector<Hash128> keys;
  keys.reserve(index_.size());
  for (const auto& [key, entry] : index_) keys.push_back(key);
  return keys;
}

ArenaStats Arena::stats() {
  MutexLock lock(mutex_);
  return {policy_.bytes(), policy_.budget(), policy_.pinned_bytes(),
          hits_,           evictions_,       slab_refused_};
}

}  // namespace inferscale
