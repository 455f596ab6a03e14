// Who stays in the arena and who goes: least recently used first, never what is pinned, no tenant
// above its share. Bookkeeping only, without memory, I/O, time or locks, so that the same policy
// serves any fast tier and can be tested by itself.
#ifndef INFERSCALE_STORE_ARENA_POLICY_H_
#define INFERSCALE_STORE_ARENA_POLICY_H_

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

namespace inferscale {

class ArenaPolicy {
 public:
  using Id = uint64_t;  // never used twice

  // `tenant_budget` 0: a tenant may fill the whole budget.
  ArenaPolicy(uint64_t budget, uint64_t tenant_budget);

  enum class Room : uint8_t {
    kFits,
    kEvict,  // remove `victim`, then ask again
    kFull,   // pins leave no room; evicting would not help, and nothing was asked to go
  };
  struct Decision {
    Room room = Room::kFits;
    Id victim = 0;
  };
  // May `bytes` more of `tenant` come in?
  Decision Admit(const std::string& tenant, uint64_t bytes) const;

  // The entry to give up next, whatever the budgets say; nothing if all are pinned. For memory that
  // is free but in pieces.
  std::optional<Id> Oldest() const;

  // A new entry, pinned once. It was admitted.
  void Add(Id id, const std::string& tenant, uint64_t bytes);
  void Pin(Id id);
  // The last unpin is the moment of use that the order goes by.
  void Unpin(Id id);
  void Remove(Id id);

  bool IsPinned(Id id) const { return entries_.at(id).pins != 0; }
  uint64_t budget() const { return budget_; }
  uint64_t bytes() const { return total_.bytes; }
  uint64_t pinned_bytes() const { return total_.pinned; }

 private:
  struct Group {
    uint64_t bytes = 0;
    uint64_t pinned = 0;
    std::list<Id> order;  // unpinned entries, the next to go first
  };
  struct Entry {
    std::string tenant;
    uint64_t bytes = 0;
    uint64_t pins = 0;
    std::list<Id>::iterator in_total, in_tenant;  // valid while not pinned
  };
  void Unlink(const Entry& entry, Group& tenant);

  const uint64_t budget_;
  const uint64_t tenant_budget_;
  Group total_;
  std::unordered_map<std::string, Group> tenants_;
  std::unordered_map<Id, Entry> entries_;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_ARENA_POLICY_H_
