// What FactStore promises, in the plainest form: lists that are searched from end to end.
#ifndef INFERSCALE_TESTS_MEMORY_FACT_STORE_MODEL_H_
#define INFERSCALE_TESTS_MEMORY_FACT_STORE_MODEL_H_

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "memory/fact_store.h"

namespace inferscale {

class FactStoreModel {
 public:
  using User = std::pair<std::string, std::string>;  // tenant, user
  struct Kv {
    EpisodeKv kv;
    Fingerprint fingerprint;
    std::vector<std::string> window;
  };
  struct Anchor {
    std::vector<std::string> ids;
    uint64_t facts_then = 0;
  };
  struct Failure {
    int count = 0;
    int64_t retry_ms = 0;
  };
  using Record = std::pair<int64_t, Fingerprint>;  // episode, model

  FactStoreModel(size_t episode_facts, size_t episode_bytes)
      : episode_facts_(episode_facts), episode_bytes_(episode_bytes) {}

  int64_t now = 0;
  std::vector<Fact> facts;  // by row
  std::vector<Kv> kvs;
  std::set<Hash128> garbage;
  std::map<std::pair<User, size_t>, Anchor> anchors;  // by their size
  std::map<Record, Failure> failures;
  std::map<std::string, std::vector<HistoryEntry>> histories;

  bool Alive(const Fact& fact) const { return !fact.expires_ms || *fact.expires_ms > now; }
  Fact* Find(const std::string& id) {
    const auto found = std::ranges::find(facts, id, &Fact::id);
    return found == facts.end() ? nullptr : &*found;
  }
  std::vector<Fact> EpisodeFacts(int64_t episode) const {
    std::vector<Fact> out;
    std::ranges::copy_if(facts, std::back_inserter(out),
                         [&](const Fact& fact) { return fact.episode == episode; });
    return out;
  }
  std::set<int64_t> Episodes() const {
    std::set<int64_t> ids;
    for (const Fact& fact : facts) ids.insert(fact.episode);
    return ids;
  }
  static size_t Bytes(const std::vector<Fact>& of) {
    size_t bytes = 0;
    for (const Fact& fact : of) bytes += RenderFact(fact).size();
    return bytes;
  }
  int64_t NewestEpisode(const Scope& scope) const {
    int64_t newest = 0;
    for (const Fact& fact : facts) {
      if (fact.scope == scope) newest = std::max(newest, fact.episode);
    }
    return newest;
  }
  uint64_t Count(const User& user) const {
    return static_cast<uint64_t>(std::ranges::count_if(
        facts, [&](const Fact& fact) { return User(fact.scope.tenant, fact.scope.user) == user; }));
  }

  std::string Duplicate(const Fact& fact) const {
    for (const Fact& other : facts) {
      if (Alive(other) && other.scope == fact.scope &&
          NormalizeForDuplicates(other) == NormalizeForDuplicates(fact)) {
        return other.id;
      }
    }
    return "";
  }
  // `id` is the one that the store gave it.
  void Add(Fact fact, const std::string& id) {
    const int64_t newest = NewestEpisode(fact.scope);
    const auto before = EpisodeFacts(newest);
    const bool fits = newest != 0 && before.size() < episode_facts_ &&
                      Bytes(before) + RenderFact(fact).size() <= episode_bytes_;
    fact.id = id;
    fact.row = ++last_row_;
    fact.episode = fits ? newest : ++last_episode_;
    fact.created_ms = fact.updated_ms = now;
    facts.push_back(fact);
    histories[id].push_back({id, 1, "ADD", "", fact.text, now});
  }
  void Update(const std::string& id, const FactUpdate& update) {
    Fact& fact = *Find(id);
    const Fact before = fact;
    if (update.text) fact.text = *update.text;
    if (update.speaker) fact.speaker = *update.speaker;
    if (update.metadata) fact.metadata = *update.metadata;
    if (update.expires_ms) fact.expires_ms = *update.expires_ms;
    fact.updated_ms = now;
    if (RenderFact(fact) != RenderFact(before)) ForgetDependents({id});
    if (fact.text == before.text && fact.speaker == before.speaker) return;
    ++fact.version;
    histories[id].push_back({id, fact.version, "UPDATE", before.text, fact.text, now});
  }
  void Delete(const std::set<std::string>& ids, const std::string& event) {
    ForgetDependents(ids);
    for (const std::string& id : ids) {
      for (HistoryEntry& entry : histories[id]) entry.old_text = entry.new_text = "";
      histories[id].push_back({id, Find(id)->version, event, "", "", now});
    }
    std::erase_if(facts, [&](const Fact& fact) { return ids.contains(fact.id); });
    const std::set<int64_t> left = Episodes();
    std::erase_if(failures, [&](const auto& entry) { return !left.contains(entry.first.first); });
  }

  bool CanPut(const EncodedEpisode& encoded) {
    const auto of = EpisodeFacts(encoded.kv.episode);
    if (of.size() < encoded.fact_ids.size()) return false;
    for (size_t i = 0; i < encoded.fact_ids.size(); ++i) {
      if (of[i].id != encoded.fact_ids[i] || of[i].version != encoded.fact_versions[i])
        return false;
    }
    for (size_t i = 0; i < encoded.window_ids.size(); ++i) {
      const Fact* fact = Find(encoded.window_ids[i]);
      if (fact == nullptr || fact->version != encoded.window_versions[i] ||
          fact->scope.tenant != of.front().scope.tenant) {
        return false;
      }
    }
    return true;
  }
  void PutKv(const Fingerprint& fingerprint, const EncodedEpisode& encoded) {
    ForgetIf([&](const Kv& kv) {
      return kv.kv.episode == encoded.kv.episode && kv.fingerprint == fingerprint &&
             kv.kv.encoding == encoded.kv.encoding;
    });
    kvs.push_back({encoded.kv, fingerprint, encoded.window_ids});
    garbage.erase(encoded.kv.key);
    failures.erase({encoded.kv.episode, fingerprint});
  }
  void DropSetting(const Fingerprint& fingerprint, const Hash128& encoding) {
    ForgetIf(
        [&](const Kv& kv) { return kv.fingerprint == fingerprint && kv.kv.encoding == encoding; });
  }
  void ForgetKey(const Hash128& key) {
    ForgetIf([&](const Kv& kv) { return kv.kv.key == key; });
  }
  void Fail(const Fingerprint& fingerprint, int64_t episode) {
    Failure& failure = failures[{episode, fingerprint}];
    failure.retry_ms = now + std::min<int64_t>(3'600'000, int64_t{1000} << failure.count++);
  }
  std::vector<int64_t> Pending(const Fingerprint& fingerprint, const Hash128& encoding,
                               int64_t grown_ms, bool with_failed) const {
    std::vector<int64_t> out;
    for (const int64_t episode : Episodes()) {
      const auto of = EpisodeFacts(episode);
      const bool covered = std::ranges::any_of(kvs, [&](const Kv& kv) {
        return kv.kv.episode == episode && kv.fingerprint == fingerprint &&
               kv.kv.encoding == encoding && kv.kv.covered >= of.size();
      });
      const auto failed = failures.find({episode, fingerprint});
      const bool waits = failed != failures.end() && failed->second.retry_ms > now;
      const bool full = of.size() >= episode_facts_ || Bytes(of) >= episode_bytes_ ||
                        NewestEpisode(of.front().scope) != episode;
      const bool grown =
          std::ranges::any_of(of, [&](const Fact& fact) { return fact.created_ms > grown_ms; });
      if (!covered && (with_failed || !waits) && (full || !grown)) out.push_back(episode);
    }
    return out;
  }

 private:
  template <typename Condition>
  void ForgetIf(const Condition& condition) {
    std::set<Hash128> gone;
    std::erase_if(kvs, [&](const Kv& kv) {
      if (condition(kv)) gone.insert(kv.kv.key);
      return condition(kv);
    });
    for (const Hash128& key : gone) {
      if (std::ranges::none_of(kvs, [&](const Kv& kv) { return kv.kv.key == key; })) {
        garbage.insert(key);
      }
    }
  }
  void ForgetDependents(const std::set<std::string>& ids) {
    const auto changed = [&](const std::string& id) { return ids.contains(id); };
    ForgetIf([&](const Kv& kv) {
      auto covered = EpisodeFacts(kv.kv.episode);
      covered.resize(std::min<size_t>(covered.size(), kv.kv.covered));
      return std::ranges::any_of(covered, changed, &Fact::id) ||
             std::ranges::any_of(kv.window, changed);
    });
    std::erase_if(
        anchors, [&](const auto& entry) { return std::ranges::any_of(entry.second.ids, changed); });
    for (const std::string& id : ids) {
      std::erase_if(failures,
                    [&](const auto& entry) { return entry.first.first == Find(id)->episode; });
    }
  }

  const size_t episode_facts_;
  const size_t episode_bytes_;
  int64_t last_row_ = 0;
  int64_t last_episode_ = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_MEMORY_FACT_STORE_MODEL_H_
