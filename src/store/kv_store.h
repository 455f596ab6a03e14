// Where KV lives: records on disk in segment files, found through a catalog, and a host arena that
// keeps the ones in use. Text is the truth and KV is a cache: whatever is lost, stale or damaged
// here is reported as missing and encoded again.
#ifndef INFERSCALE_STORE_KV_STORE_H_
#define INFERSCALE_STORE_KV_STORE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/result.h"
#include "kv/fact_kv.h"
#include "kv/fingerprint.h"
#include "store/env.h"

namespace inferscale {

// What a record is: `key` names its content (tenant, user, fingerprint, window and tokens), so
// equal keys hold equal KV.
struct KvRecordInfo {
  Hash128 key;
  std::string tenant;  // whose quota it counts against
  Fingerprint fingerprint;
  KvShape shape;
  std::vector<Token> tokens;  // compared with the prompt's before it is injected
};

// Memory for a slab of so many bytes, given back with the last reference.
using SlabSource = std::function<Result<std::shared_ptr<std::byte>>(uint64_t bytes)>;

struct KvStoreOptions {
  std::string dir;  // created; holds catalog.db and segments
  uint64_t segment_bytes = uint64_t{256} << 20;
  uint64_t arena_bytes = uint64_t{1} << 30;  // host memory for records, a hard budget
  // Where that memory comes from, at once and whole; none: the system, as records come in. Memory
  // that a device copies from at full speed is PinnedSlab's (store/device_arena.h).
  SlabSource arena_slab = {};
  uint64_t disk_bytes = 0;          // allocated blocks of all segments; 0: no limit
  uint64_t tenant_arena_bytes = 0;  // per tenant; 0: no limit
  uint64_t tenant_disk_bytes = 0;   // per tenant, of record bytes; 0: no limit
  double compact_below = 0.5;       // a segment whose live share is lower is rewritten
  // How long a full compaction waits for other processes to let go of the segments that they append
  // to, which they do when SealWhereAsked is called there.
  std::chrono::milliseconds seal_patience{5000};
};

enum class Recovery : uint8_t {
  kEmpty,      // nothing was there
  kRecovered,  // everything that the catalog names is in place
  kCorrupt,    // some records were damaged and were dropped; see KvStoreStats
  kTransient,  // the system refused; nothing was dropped, open again later
};

struct KvStoreStats {
  Recovery recovery = Recovery::kEmpty;
  uint64_t records = 0;
  uint64_t live_bytes = 0;  // of records
  uint64_t disk_bytes = 0;  // allocated blocks of the segments
  uint64_t segments = 0;
  uint64_t arena_bytes = 0;  // in use
  uint64_t arena_budget = 0;
  bool slab_refused = false;  // options.arena_slab had none: the arena is in ordinary memory
  uint64_t pinned_bytes = 0;
  uint64_t arena_hits = 0;
  uint64_t disk_reads = 0;
  uint64_t misses = 0;           // no such record
  uint64_t corrupt_records = 0;  // dropped because a check failed
  uint64_t evictions = 0;
};

// Where a record was when it was asked for; kEngine: an engine that looks for it itself knows.
enum class Tier : uint8_t { kHost, kDisk, kDevice, kEngine };

// A record in the arena that can't be evicted while this lives. Movable, cheap.
class PinnedKv {
 public:
  virtual ~PinnedKv() = default;
  virtual FactKvView view() const = 0;
  virtual std::span<const Token> tokens() const = 0;
  virtual const std::string& tenant() const = 0;  // whose quota it counts against
  virtual Tier tier() const = 0;
};

// Whose records, and of which model.
struct KvOwner {
  std::string tenant;
  Fingerprint fingerprint;
  KvShape shape;

  // A record of no tenant is everyone's: that of a prompt's header.
  bool Sees(const std::string& record_tenant) const {
    return record_tenant.empty() || record_tenant == tenant;
  }
};

// `expected` are tokens of a prompt, which a record is said to hold from `record_token` on.
struct KvClaim {
  Hash128 key;
  uint32_t record_token = 0;
  std::span<const Token> expected;
};

struct KvPut {
  KvRecordInfo info;
  ByteSpan payload;  // info.tokens.size() * info.shape.TokenBytes() bytes of FactKv
};

struct CompactReport {
  uint64_t segments_rewritten = 0;
  uint64_t segments_removed = 0;
  uint64_t segments_busy = 0;  // another process appends to them and did not let them go: erased
                               // bytes may stay in them
  uint64_t bytes_freed = 0;    // allocated blocks
};

class KvStore {
 public:
  // kTransient if the system refuses (too many open files, no space), kCorrupt never: damage is
  // dropped, counted and told by stats().recovery. `env` and `clock` must outlive the store.
  static Result<std::unique_ptr<KvStore>> Open(Env& env, const Clock& clock,
                                               KvStoreOptions options);
  virtual ~KvStore() = default;

  // All or nothing, durable on return: records, one fdatasync, then one catalog transaction. A key
  // that exists already is left as it is. kExhausted if a disk quota has no room.
  virtual Status Put(std::span<const KvPut> records) = 0;

  // kNotFound; kCorrupt (the record is dropped); kExhausted if pins leave no room in the arena;
  // kConflict if the record is of another fingerprint or shape than asked for. A shared_ptr so that
  // a pin can travel with the generation that uses it.
  virtual Result<std::shared_ptr<const PinnedKv>> Get(const Hash128& key,
                                                      const Fingerprint& fingerprint,
                                                      const KvShape& shape) = 0;
  virtual bool Contains(const Hash128& key) = 0;

  // The three below see what other processes did, but ask the catalog for rows only if it has
  // changed since they were last asked for.

  // Those of `keys` (their indices) that there is no record of.
  virtual Result<std::vector<size_t>> Missing(std::span<const Hash128> keys) = 0;
  // As Get for each key, but only from the arena: null for what Get would have to read, or which
  // only Get can tell what is wrong with. kNotFound also for another tenant's.
  virtual std::vector<Result<std::shared_ptr<const PinnedKv>>> GetResident(
      const KvOwner& owner, std::span<const Hash128> keys) = 0;
  // For each claim whether it is true: kNotFound, also for another tenant's; kConflict for another
  // fingerprint, shape or other tokens; kInvalid beyond the record; kCorrupt (the record is
  // dropped). Reads no KV, and the disk only for records that were not asked for lately.
  virtual std::vector<Status> Check(const KvOwner& owner, std::span<const KvClaim> claims) = 0;

  // Durable on return: the records can't be found any more, in no tier. Unknown keys are no error.
  virtual Status Erase(std::span<const Hash128> keys) = 0;

  // Rewrites segments with a low live share (all with any dead bytes if `full`), so that erased
  // bytes leave the disk. Readers and writers go on.
  virtual Result<CompactReport> Compact(bool full) = 0;
  // Lets go of the segments that another process's full compaction waits for, and of what was
  // erased of them from the arena. To be called every kSealPoll or so by whoever keeps a store open
  // that it puts into; otherwise costs a look for a file.
  static constexpr std::chrono::milliseconds kSealPoll{200};
  virtual Status SealWhereAsked() = 0;

  // Every key in the catalog, for sweeping what no fact refers to.
  virtual Result<std::vector<Hash128>> Keys() = 0;
  // Of these records together, on the disk; unknown ones have none.
  virtual Result<uint64_t> BytesOf(std::span<const Hash128> keys) = 0;
  // Of all of a tenant's records, on the disk.
  virtual Result<uint64_t> TenantBytes(const std::string& tenant) = 0;
  // Reads the whole catalog, but not the records, whose checksums are verified whenever they are
  // read. False if it was damaged: it is empty now. A full compaction begins with it.
  virtual Result<bool> Verify() = 0;
  virtual KvStoreStats stats() = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_KV_STORE_H_
