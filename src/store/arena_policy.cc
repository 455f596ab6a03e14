#include "store/arena_policy.h"

#include <algorithm>

namespace inferscale {

ArenaPolicy::ArenaPolicy(uint64_t budget, uint64_t tenant_budget)
    : budget_(budget),
      tenant_budget_(tenant_budget == 0 ? UINT64_MAX : std::min(budget, tenant_budget)) {}

ArenaPolicy::Decision ArenaPolicy::Admit(const std::string& tenant, uint64_t bytes) const {
  const auto found = tenants_.find(tenant);
  const uint64_t tenant_bytes = found == tenants_.end() ? 0 : found->second.bytes;
  const uint64_t tenant_pinned = found == tenants_.end() ? 0 : found->second.pinned;
  if (bytes > budget_ - total_.pinned || bytes > tenant_budget_ - tenant_pinned) {
    return {Room::kFull};
  }
  // A tenant above its share gives up its own entries, so that it can't push out the others'.
  if (tenant_bytes + bytes > tenant_budget_) return {Room::kEvict, found->second.order.front()};
  if (total_.bytes + bytes > budget_) return {Room::kEvict, total_.order.front()};
  return {Room::kFits};
}

std::optional<ArenaPolicy::Id> ArenaPolicy::Oldest() const {
  if (total_.order.empty()) return std::nullopt;
  return total_.order.front();
}

void ArenaPolicy::Add(Id id, const std::string& tenant, uint64_t bytes) {
  entries_.emplace(id, Entry{tenant, bytes, 1, {}, {}});
  for (Group* group : {&total_, &tenants_[tenant]}) {
    group->bytes += bytes;
    group->pinned += bytes;
  }
}

void ArenaPolicy::Pin(Id id) {
  Entry& entry = entries_.at(id);
  if (entry.pins++ != 0) return;
  Group& tenant = tenants_.at(entry.tenant);
  Unlink(entry, tenant);
  total_.pinned += entry.bytes;
  tenant.pinned += entry.bytes;
}

void ArenaPolicy::Unpin(Id id) {
  Entry& entry = entries_.at(id);
  if (--entry.pins != 0) return;
  Group& tenant = tenants_.at(entry.tenant);
  entry.in_total = total_.order.insert(total_.order.end(), id);
  entry.in_tenant = tenant.order.insert(tenant.order.end(), id);
  total_.pinned -= entry.bytes;
  tenant.pinned -= entry.bytes;
}

void ArenaPolicy::Remove(Id id) {
  const auto found = entries_.find(id);
  const Entry& entry = found->second;
  const auto tenant = tenants_.find(entry.tenant);
  if (entry.pins == 0) Unlink(entry, tenant->second);
  for (Group* group : {&total_, &tenant->second}) {
    group->bytes -= entry.bytes;
    if (entry.pins != 0) group->pinned -= entry.bytes;
  }
  if (tenant->second.bytes == 0) tenants_.erase(tenant);
  entries_.erase(found);
}

void ArenaPolicy::Unlink(const Entry& entry, Group& tenant) {
  total_.order.erase(entry.in_total);
  tenant.order.erase(entry.in_tenant);
}

}  // namespace inferscale
