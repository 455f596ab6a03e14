#include "store/arena_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace inferscale {
namespace {

using Room = ArenaPolicy::Room;

// The same policy in the plainest way: one list, sums made anew each time.
class PlainPolicy {
 public:
  struct Entry {
    uint64_t id;
    std::string tenant;
    uint64_t bytes;
    uint64_t pins;
    uint64_t used_at;
  };

  PlainPolicy(uint64_t budget, uint64_t tenant_budget)
      : budget_(budget), tenant_budget_(tenant_budget) {}

  uint64_t Sum(const std::string* tenant, bool pinned_only) const {
    uint64_t sum = 0;
    for (const Entry& entry : entries) {
      if (tenant != nullptr && entry.tenant != *tenant) continue;
      if (!pinned_only || entry.pins != 0) sum += entry.bytes;
    }
    return sum;
  }

  std::optional<uint64_t> Oldest(const std::string* tenant) const {
    const Entry* oldest = nullptr;
    for (const Entry& entry : entries) {
      if (entry.pins != 0 || (tenant != nullptr && entry.tenant != *tenant)) continue;
      if (oldest == nullptr || entry.used_at < oldest->used_at) oldest = &entry;
    }
    return oldest == nullptr ? std::nullopt : std::optional(oldest->id);
  }

  ArenaPolicy::Decision Admit(const std::string& tenant, uint64_t bytes) const {
    if (Sum(nullptr, true) + bytes > budget_) return {Room::kFull};
    if (tenant_budget_ != 0 && Sum(&tenant, true) + bytes > tenant_budget_) return {Room::kFull};
    if (tenant_budget_ != 0 && Sum(&tenant, false) + bytes > tenant_budget_) {
      return {Room::kEvict, *Oldest(&tenant)};
    }
    if (Sum(nullptr, false) + bytes > budget_) return {Room::kEvict, *Oldest(nullptr)};
    return {Room::kFits};
  }

  Entry& Find(uint64_t id) {
    return *std::find_if(entries.begin(), entries.end(), [id](auto& e) { return e.id == id; });
  }

  std::vector<Entry> entries;
  uint64_t now = 0;

 private:
  uint64_t budget_;
  uint64_t tenant_budget_;
};

class Walk {
 public:
  explicit Walk(uint64_t seed)
      : random_(seed),
        budget_(200 + Below(2000)),
        tenant_budget_(Below(3) == 0 ? 0 : 1 + Below(budget_)),
        policy_(budget_, tenant_budget_),
        plain_(budget_, tenant_budget_) {}

  void Step() {
    const uint64_t choice = Below(10);
    if (choice < 4 || plain_.entries.empty()) return BringIn();
    PlainPolicy::Entry& entry = plain_.entries[Below(plain_.entries.size())];
    if (choice < 6) {
      policy_.Pin(entry.id);
      ++entry.pins;
    } else if (choice < 9) {
      if (entry.pins == 0) return;
      policy_.Unpin(entry.id);
      if (--entry.pins == 0) entry.used_at = ++plain_.now;
    } else {
      Remove(entry.id);
    }
  }

  void Check() {
    ASSERT_EQ(policy_.bytes(), plain_.Sum(nullptr, false));
    ASSERT_EQ(policy_.pinned_bytes(), plain_.Sum(nullptr, true));
    ASSERT_LE(policy_.bytes(), budget_);
    ASSERT_EQ(policy_.Oldest(), plain_.Oldest(nullptr));
    for (const PlainPolicy::Entry& entry : plain_.entries) {
      ASSERT_EQ(policy_.IsPinned(entry.id), entry.pins != 0);
      ASSERT_LE(plain_.Sum(&entry.tenant, false), tenant_budget_ == 0 ? budget_ : tenant_budget_);
    }
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }

  void BringIn() {
    const std::string tenant(1, static_cast<char>('a' + Below(4)));
    const uint64_t bytes = 1 + Below(budget_ / 3);
    while (true) {
      const auto decision = policy_.Admit(tenant, bytes);
      const auto expected = plain_.Admit(tenant, bytes);
      ASSERT_EQ(decision.room, expected.room);
      if (decision.room == Room::kFull) return;
      if (decision.room == Room::kFits) break;
      ASSERT_EQ(decision.victim, expected.victim);
      Remove(decision.victim);
    }
    policy_.Add(++next_id_, tenant, bytes);
    plain_.entries.push_back({next_id_, tenant, bytes, 1, 0});
  }

  void Remove(uint64_t id) {
    policy_.Remove(id);
    std::erase_if(plain_.entries, [id](const auto& entry) { return entry.id == id; });
  }

  std::mt19937_64 random_;
  uint64_t budget_;
  uint64_t tenant_budget_;
  ArenaPolicy policy_;
  PlainPolicy plain_;
  uint64_t next_id_ = 0;
};

TEST(ArenaPolicy, DoesWhatThePlainModelDoes) {
  const uint64_t seed = std::random_device()();
  for (uint64_t walk = 0; walk < 50; ++walk) {
    SCOPED_TRACE(testing::Message() << "seed " << seed + walk);
    Walk both(seed + walk);
    for (int step = 0; step < 400; ++step) {
      both.Step();
      both.Check();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(ArenaPolicy, TheLeastRecentlyUsedGoesFirst) {
  ArenaPolicy policy(30, 0);
  for (const uint64_t id : {1U, 2U, 3U}) {
    ASSERT_EQ(policy.Admit("t", 10).room, Room::kFits);
    policy.Add(id, "t", 10);
    policy.Unpin(id);
  }
  policy.Pin(1);
  policy.Unpin(1);
  EXPECT_EQ(policy.Admit("t", 10).victim, 2U);
  policy.Pin(2);
  EXPECT_EQ(policy.Admit("t", 10).victim, 3U);
}

TEST(ArenaPolicy, ATenantAboveItsShareLosesItsOwn) {
  ArenaPolicy policy(100, 20);
  policy.Add(1, "quiet", 10);
  policy.Unpin(1);
  policy.Add(2, "busy", 20);
  policy.Unpin(2);
  const auto decision = policy.Admit("busy", 10);
  EXPECT_EQ(decision.room, Room::kEvict);
  EXPECT_EQ(decision.victim, 2U);
  EXPECT_EQ(policy.Admit("busy", 21).room, Room::kFull);
}

}  // namespace
}  // namespace inferscale
