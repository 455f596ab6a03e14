// The truth: facts, their versions and history, their vectors, their episodes, and which KV record
// belongs to which episode. One SQLite file (memory.db, WAL, synchronous=FULL): whatever a call
// acknowledged survives a power cut.
//
// Episodes. Facts of one conversation (equal scope) stand in runs of at most `episode_facts`
// consecutive ones; the newest run is open until it is full. An episode is encoded whole. Its KV
// covers its first `covered` facts, and stays valid while facts are appended (attention is causal);
// updating or deleting a covered fact, or one that stood in its window, forgets the KV in the same
// transaction and puts its key on the garbage list, so that it can't be used again.
#ifndef INFERSCALE_MEMORY_FACT_STORE_H_
#define INFERSCALE_MEMORY_FACT_STORE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/result.h"
#include "kv/fingerprint.h"
#include "memory/fact.h"
#include "memory/filter.h"

namespace inferscale {

struct FactStoreOptions {
  std::string path;                   // of memory.db; its folder must exist
  uint32_t episode_facts = 3;         // for new episodes
  size_t max_text_bytes = 16 * 1024;  // of one fact; longer ones are kInvalid
  size_t max_episode_bytes = 4096;    // of text; a further fact opens a new episode
  // Called with a user's tenant and name after this store has changed or deleted facts of theirs,
  // so that nothing derived from them is kept. May be called by any thread that uses the store.
  std::function<void(const std::string&, const std::string&)> on_change = nullptr;
};

enum class AddEvent : uint8_t { kAdded, kDuplicate };

struct AddResult {
  std::string id;  // of the new fact, or of the one that said the same already
  AddEvent event = AddEvent::kAdded;
};

struct FactUpdate {
  std::optional<std::string> text;
  std::optional<std::string> speaker;
  std::optional<int64_t> when_ms;
  std::optional<std::string> metadata;
  std::optional<std::optional<int64_t>> expires_ms;
};

struct HistoryEntry {
  std::string fact_id;
  uint32_t version = 0;
  std::string event;     // "ADD", "UPDATE", "DELETE", "EXPIRE"
  std::string old_text;  // empty once the fact is deleted: no text outlives its fact
  std::string new_text;
  int64_t at_ms = 0;
};

struct FactWithHistory {
  Fact fact;
  std::vector<HistoryEntry> history;  // oldest first
};

// What facts leave in files: their bytes as they are stored, to be looked for once they are gone.
struct Traces {
  size_t facts = 0;
  std::vector<std::string> texts;    // also of earlier versions, and metadata
  std::vector<std::string> vectors;  // binary
  std::vector<Hash128> keys;         // of KV of their episodes, under all settings
};

struct ListQuery {
  Scope scope;
  const Filter* filter = nullptr;
  size_t limit = 100;
  size_t offset = 0;
  bool newest_first = false;
};

// One episode as it is now.
struct Episode {
  int64_t id = 0;
  Scope scope;
  std::vector<Fact> facts;  // in order
};

// The KV of an episode under one fingerprint.
struct EpisodeKv {
  int64_t episode = 0;
  Hash128 key;
  uint32_t covered = 0;               // its first facts
  std::vector<uint32_t> fact_tokens;  // tokens of each covered fact, in order
  Hash128 encoding;                   // of the window strategy and header it was made with
};

// What KV is made under, and KV of different settings is kept side by side.
struct KvSetting {
  Fingerprint fingerprint;
  Hash128 encoding;       // EpisodeKv::encoding
  std::string label;      // for people: model and window
  Hash128 header_key;     // the record of the header's KV; zero: none
  int64_t used_ms = 0;    // when it was last put to use
  uint64_t episodes = 0;  // that have KV under it
};

// Which pending episodes.
struct PendingQuery {
  size_t limit = std::numeric_limits<size_t>::max();
  int64_t after = 0;  // ids above this one
  // One that may still grow only if it has not after this time.
  int64_t grown_ms = std::numeric_limits<int64_t>::max();
  std::span<const std::string> without{};  // none of these tenants
  const Scope* of = nullptr;               // of this tenant and user only
};

// What EpisodeKv depends on besides the episode's own facts.
struct EncodedEpisode {
  EpisodeKv kv;
  std::vector<std::string> fact_ids;    // as they were when it was encoded, with
  std::vector<uint32_t> fact_versions;  // their versions
  std::vector<std::string> window_ids;  // facts of the window
  std::vector<uint32_t> window_versions;
};

// How near injected KV came to full prefill, and beside it another order of the same facts: what
// the quality gate (app/gate.h) measured for a model and its settings.
struct GateVerdict {
  bool passed = false;
  std::optional<double> kl;  // mean over positions, nats; none if the engine gives no logits
  std::optional<double> noise_kl;
  double agreement = 0;  // share of positions with the same most likely token
  double noise_agreement = 0;
  double injected = 0;  // share of the prompts' tokens
  uint32_t questions = 0;
  uint32_t positions = 0;
  uint32_t least_facts = 0;  // the fewest in a prompt with which KV passed too; 0: not measured
  int64_t at_ms = 0;

  bool operator==(const GateVerdict&) const = default;
};

// What an operator lets a tenant have; 0: any.
struct TenantQuota {
  uint64_t facts = 0;                     // more are not taken
  uint64_t kv_bytes = 0;                  // of records on the disk: then facts stay text
  uint64_t encode_tokens_per_minute = 0;  // then facts are text for longer

  bool operator==(const TenantQuota&) const = default;
};

struct FactStoreStats {
  uint64_t facts = 0;
  uint64_t users = 0;  // distinct (tenant, user)
  uint64_t episodes = 0;
  uint64_t episodes_encoded = 0;  // covered completely, under any setting of the fingerprint
  uint64_t history_entries = 0;
  uint64_t file_bytes = 0;  // database and write-ahead log
};

class FactStore {
 public:
  // kCorrupt if the file is not a memory database or of a newer version, kTransient if the system
  // refuses. `clock` must outlive the store. All calls are thread-safe; several processes may use
  // the same file.
  static Result<std::unique_ptr<FactStore>> Open(const Clock& clock, FactStoreOptions options);
  virtual ~FactStore() = default;

  // One durable transaction. Facts are checked first: text valid UTF-8, not empty, within
  // max_text_bytes, metadata a JSON object; kInvalid names the index of the bad one and nothing is
  // added. A fact that says the same as one in its scope (NormalizeForDuplicates) is folded into
  // it. `vectors[i]` belongs to `facts[i]`, made by embedder `embedder_id`; empty: none yet.
  // kOverQuota, and nothing is added, if a tenant would have more facts than its quota.
  virtual Result<std::vector<AddResult>> Add(std::span<const Fact> facts,
                                             std::span<const std::vector<float>> vectors,
                                             const Hash128& embedder_id) = 0;
  // Ids of facts in these facts' scopes that say the same already, else empty strings; so that
  // their vectors need not be computed.
  virtual Result<std::vector<std::string>> FindDuplicates(std::span<const Fact> facts) = 0;

  // Facts as another store had them, with id, version, times and history, in one durable
  // transaction. They are checked as by Add and not folded; one whose id its tenant has already is
  // left as it is (kDuplicate). kConflict if another tenant has it, kOverQuota as by Add.
  virtual Result<std::vector<AddResult>> Restore(std::span<const FactWithHistory> facts,
                                                 std::span<const std::vector<float>> vectors,
                                                 const Hash128& embedder_id) = 0;

  virtual Result<Fact> Get(const std::string& tenant, const std::string& id) = 0;  // kNotFound
  virtual Result<std::vector<Fact>> GetRows(
      std::span<const int64_t> rows) = 0;  // missing ones left out
  virtual Result<std::vector<Fact>> List(const ListQuery& query) = 0;
  // How many List returns without a limit and an offset.
  virtual Result<size_t> Count(const ListQuery& query) = 0;
  // The users who have facts in a scope, by name; "" if there are facts of no user.
  virtual Result<std::vector<std::string>> Users(const Scope& scope) = 0;
  struct Entity {
    std::string type;  // "user", "agent" or "run"
    std::string name;
    uint64_t facts = 0;
    int64_t created_ms = 0;  // of the first fact that is still there
    int64_t updated_ms = 0;  // of the last change
  };
  // Of a tenant: whom and what facts belong to, by type and name.
  virtual Result<std::vector<Entity>> Entities(const std::string& tenant) = 0;
  // A new vector is needed iff the rendered text changes. Returns the fact as it is now.
  virtual Result<Fact> Update(const std::string& tenant, const std::string& id,
                              const FactUpdate& update, std::span<const float> vector,
                              const Hash128& embedder_id) = 0;
  // Returns how many there were. The text goes everywhere: fact, history, vector, free pages (after
  // Compact the write-ahead log and file are rewritten too).
  virtual Result<size_t> Delete(const std::string& tenant, std::span<const std::string> ids) = 0;
  virtual Result<size_t> DeleteScope(const Scope& scope) = 0;
  // What a scope's facts leave in files; an expired one too, until it is deleted.
  virtual Result<Traces> FindTraces(const Scope& scope) = 0;
  // Passes what is stored of all facts, of any tenant and expired or not, as it stands in the file:
  // texts, metadata, texts in history, vectors. `visit` must not call the store.
  using StoredVisitor = std::function<void(std::string_view)>;
  virtual Status ForEachStored(const StoredVisitor& visit) = 0;
  // Deletes what has expired by now; how many.
  virtual Result<size_t> DeleteExpired() = 0;
  // Oldest first; kNotFound if there never was such a fact.
  virtual Result<std::vector<HistoryEntry>> History(const std::string& tenant,
                                                    const std::string& id) = 0;

  // ---- for the search index -----------------------------------------------------------------
  // A number that grows with every change of this (tenant, user)'s facts, by any process. Between
  // two numbers with equal upper halves (>> 32), facts were added and nothing else.
  virtual Result<int64_t> Generation(const std::string& tenant, const std::string& user) = 0;
  // Every fact of a (tenant, user) above a row with its vector, by row. A fact whose vector is of
  // another embedder is passed with an empty vector. `visit` must not call the store.
  using FactVisitor = std::function<void(Fact&&, std::span<const float>)>;
  virtual Status ForEachAfter(const std::string& tenant, const std::string& user, int64_t row,
                              const Hash128& embedder_id, const FactVisitor& visit) = 0;
  Status ForEach(const std::string& tenant, const std::string& user, const Hash128& embedder_id,
                 const FactVisitor& visit) {
    return ForEachAfter(tenant, user, 0, embedder_id, visit);
  }
  // Facts without a vector of this embedder, at most `limit`; and where to put the missing ones.
  virtual Result<std::vector<Fact>> WithoutVector(const Hash128& embedder_id, size_t limit) = 0;
  virtual Status PutVectors(std::span<const int64_t> rows,
                            std::span<const std::vector<float>> vectors,
                            const Hash128& embedder_id) = 0;

  // ---- episodes and their KV; expired facts are part of them until DeleteExpired -------------
  virtual Result<std::vector<Episode>> GetEpisodes(std::span<const int64_t> ids) = 0;
  // Facts of the conversation (equal scope) right before an episode, newest `count`, oldest first.
  virtual Result<std::vector<Fact>> FactsBefore(int64_t episode, size_t count) = 0;
  // The KV known for these episodes under a setting; those without are left out.
  virtual Result<std::vector<EpisodeKv>> GetKv(std::span<const int64_t> episodes,
                                               const Fingerprint& fingerprint,
                                               const Hash128& encoding) = 0;
  // Episodes whose facts are not all covered under a setting, in order of id; those whose encoding
  // failed lately are left out until their back-off has passed. Takes time by what is pending, not
  // by what is stored, but for the first time that a setting is named.
  virtual Result<std::vector<int64_t>> PendingEpisodes(const Fingerprint& fingerprint,
                                                       const Hash128& encoding,
                                                       const PendingQuery& query) = 0;
  virtual Result<uint64_t> CountPending(const Fingerprint& fingerprint,
                                        const Hash128& encoding) = 0;
  // Records an encoding under `fingerprint` and its own `encoding`. kConflict, and nothing is
  // recorded, if a fact of the episode or its window has changed, gone or moved since. The key it
  // replaces becomes garbage.
  virtual Status PutKv(const Fingerprint& fingerprint, const EncodedEpisode& encoded) = 0;
  // The KV could not be read: forget it, so that the episode is encoded again.
  virtual Status ForgetKv(std::span<const Hash128> keys) = 0;
  // Waits longer after every failure: 1 s, doubled up to 1 h.
  virtual Status PutEncodeFailure(const Fingerprint& fingerprint, int64_t episode,
                                  const std::string& reason) = 0;

  // Says that a setting is in use, from now on with this label and header (0: none yet), so that
  // the header's record counts as referred to.
  virtual Status UseSetting(const KvSetting& setting) = 0;
  // The one put to use last comes first.
  virtual Result<std::vector<KvSetting>> Settings() = 0;
  // The keys that nothing but this setting refers to.
  virtual Result<std::vector<Hash128>> KeysOf(const Fingerprint& fingerprint,
                                              const Hash128& encoding) = 0;
  // Forgets a setting and all KV under it; the keys become garbage.
  virtual Status DropSetting(const Fingerprint& fingerprint, const Hash128& encoding) = 0;

  // What was measured for the settings that `id` names; replaces what was there.
  virtual Status PutVerdict(const Hash128& id, const GateVerdict& verdict) = 0;
  virtual Result<std::optional<GateVerdict>> GetVerdict(const Hash128& id) = 0;

  // The user's anchor of `size` facts, that stand as one fixed window before all of the user's
  // episodes. Empty if none was drawn, or if one of its facts has changed or gone (all KV behind it
  // is then forgotten, in that transaction).
  virtual Result<std::vector<Fact>> GetAnchor(const std::string& tenant, const std::string& user,
                                              size_t size) = 0;
  // Replaces the one of this size; KV behind the former anchor stays valid until it is encoded
  // again (its `encoding` does not change; callers ForgetKv if they want otherwise). Also the
  // number of the user's facts when it was drawn.
  virtual Status PutAnchor(const std::string& tenant, const std::string& user,
                           std::span<const std::string> fact_ids) = 0;
  struct AnchorAge {
    uint64_t facts_then = 0;
    uint64_t facts_now = 0;
  };
  virtual Result<AnchorAge> GetAnchorAge(const std::string& tenant, const std::string& user,
                                         size_t size) = 0;

  // ---- quotas ---------------------------------------------------------------------------------
  // From now on, in every process that uses the file. One without a limit is none.
  virtual Status PutQuota(const std::string& tenant, const TenantQuota& quota) = 0;
  virtual Result<TenantQuota> GetQuota(const std::string& tenant) = 0;
  // Of the tenants that have one, by name.
  virtual Result<std::vector<std::pair<std::string, TenantQuota>>> Quotas() = 0;
  // How many facts a tenant has, expired ones too until they are deleted. Reads an index of them
  // all.
  virtual Result<uint64_t> CountFacts(const std::string& tenant) = 0;

  // Records are kept by so many ranks of an engine, from now on: whoever erases a key looks for the
  // records of every number that there ever was. 1 is always among them.
  virtual Status UseRanks(uint32_t ranks) = 0;
  virtual Result<std::vector<uint32_t>> RankCounts() = 0;

  // Keys that neither an episode nor a setting refers to any more. They leave the list once their
  // records are erased.
  virtual Result<std::vector<Hash128>> Garbage(size_t limit) = 0;
  virtual Status ClearGarbage(std::span<const Hash128> keys) = 0;
  virtual Result<bool> IsReferenced(const Hash128& key) = 0;

  // ---- upkeep -------------------------------------------------------------------------------
  // Rewrites the file without its free pages and truncates the write-ahead log: what was deleted is
  // then nowhere in either.
  virtual Status Compact() = 0;
  // Reads the whole file and compares indexes with tables: minutes if it is large. kCorrupt says
  // what is wrong.
  virtual Status Verify() = 0;
  virtual Result<FactStoreStats> Stats(const Fingerprint& fingerprint) = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_FACT_STORE_H_
