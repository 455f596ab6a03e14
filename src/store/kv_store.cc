#include "store/kv_store.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "store/arena.h"
#include "store/catalog.h"
#include "store/compaction.h"
#include "store/lookup.h"
#include "store/record_reader.h"
#include "store/segment_writer.h"

namespace inferscale {
namespace {

// The bytes that the catalog names are not there, as opposed to: can't be read now.
bool Damaged(Code code) { return code == Code::kCorrupt || code == Code::kNotFound; }

class KvStoreImpl final : public KvStore {
 public:
  KvStoreImpl(Env& env, const Clock& clock, KvStoreOptions options,
              std::unique_ptr<Catalog> catalog, std::shared_ptr<Arena> arena)
      : env_(env),
        clock_(clock),
        options_(std::move(options)),
        catalog_(std::move(catalog)),
        arena_(std::move(arena)),
        lookup_(*catalog_, env, options_.dir) {}

  Status Recover();
  Status Put(std::span<const KvPut> records) override;
  Result<std::shared_ptr<const PinnedKv>> Get(const Hash128& key, const Fingerprint& fingerprint,
                                              const KvShape& shape) override;
  bool Contains(const Hash128& key) override;
  Result<std::vector<size_t>> Missing(std::span<const Hash128> keys) override;
  std::vector<Result<std::shared_ptr<const PinnedKv>>> GetResident(
      const KvOwner& owner, std::span<const Hash128> keys) override;
  std::vector<Status> Check(const KvOwner& owner, std::span<const KvClaim> claims) override;
  Status Erase(std::span<const Hash128> keys) override;
  Result<CompactReport> Compact(bool full) override;
  Status SealWhereAsked() override;
  Result<std::vector<Hash128>> Keys() override { return catalog_->Keys(); }
  Result<uint64_t> BytesOf(std::span<const Hash128> keys) override { return catalog_->Bytes(keys); }
  Result<uint64_t> TenantBytes(const std::string& tenant) override {
    return catalog_->TenantBytes(tenant);
  }
  Result<bool> Verify() override { return catalog_->Verify(); }
  KvStoreStats stats() override;

 private:
  Result<bool> CheckSegment(const SegmentUse& use);
  Result<std::vector<const KvPut*>> NewOnes(std::span<const KvPut> records);
  Status CheckQuotas(std::span<const KvPut* const> records);
  Result<uint64_t> DiskBytes(uint64_t* segments = nullptr);
  Result<std::vector<CatalogRow>> Append(std::span<const KvPut* const> records)
      REQUIRES(write_mutex_);
  Result<RecordPlace> AppendOne(const KvPut& record) REQUIRES(write_mutex_);
  void Cache(const KvPut& record, uint64_t epoch);
  Result<std::shared_ptr<const PinnedKv>> Fetch(const CatalogRow& row, uint64_t epoch);
  Result<std::shared_ptr<const PinnedKv>> Refuse(const CatalogRow& row);
  Status CheckOne(const KvOwner& owner, const KvClaim& claim, Lookup::Row row);
  Status ForgetErased();

  Env& env_;
  const Clock& clock_;
  const KvStoreOptions options_;
  const std::unique_ptr<Catalog> catalog_;
  const std::shared_ptr<Arena> arena_;
  Lookup lookup_;
  Recovery recovery_ = Recovery::kEmpty;  // set before the store is shared

  Mutex write_mutex_;
  // The segments that this process appends to. One whose writing failed is let go at once.
  std::map<Fingerprint, std::unique_ptr<SegmentWriter>> writers_ GUARDED_BY(write_mutex_);

  std::atomic<uint64_t> disk_reads_ = 0;
  std::atomic<uint64_t> misses_ = 0;
  std::atomic<uint64_t> corrupt_records_ = 0;
};

// Looks at sizes only; checksums are verified when a record is read.
Status KvStoreImpl::Recover() {
  INFERSCALE_ASSIGN(const auto segments, catalog_->Segments());
  recovery_ = segments.empty() ? Recovery::kEmpty : Recovery::kRecovered;
  bool refused = false;
  for (const SegmentUse& use : segments) {
    const auto whole = CheckSegment(use);
    if (!whole) refused = true;
    if (whole && !*whole) recovery_ = Recovery::kCorrupt;
  }
  if (refused) recovery_ = Recovery::kTransient;
  return {};
}

// Drops the records of which the file lacks bytes. True if there are none.
Result<bool> KvStoreImpl::CheckSegment(const SegmentUse& use) {
  uint64_t size = 0;
  const auto file = env_.OpenRead(options_.dir + "/" + use.segment);
  if (file) {
    INFERSCALE_ASSIGN(size, (*file)->Size());
  } else if (file.error().code != Code::kNotFound) {
    return tl::unexpected(file.error());
  }
  if (size >= use.end) return true;
  INFERSCALE_ASSIGN(auto rows, catalog_->RecordsIn(use.segment));
  std::erase_if(
      rows, [size](const CatalogRow& row) { return row.place.offset + row.place.length <= size; });
  INFERSCALE_ASSIGN(const uint64_t dropped, catalog_->Drop(rows));
  corrupt_records_ += dropped;
  // None, if another process moved them while we looked.
  return dropped == 0;
}

Status KvStoreImpl::Put(std::span<const KvPut> records) {
  for (const KvPut& record : records) {
    INFERSCALE_TRY(CheckRecord(record.info, record.payload.size()));
    if (record.info.key.IsZero() || record.info.fingerprint.IsZero()) {
      return Fail(Code::kInvalid, "a record needs a key and a fingerprint that are not zero");
    }
  }
  std::vector<const KvPut*> todo;
  uint64_t epoch = 0;
  {
    MutexLock lock(write_mutex_);
    INFERSCALE_ASSIGN(todo, NewOnes(records));
    if (todo.empty()) return {};
    INFERSCALE_TRY(CheckQuotas(todo));
    epoch = arena_->epoch();
    INFERSCALE_ASSIGN(const auto rows, Append(todo));
    INFERSCALE_TRY(catalog_->Insert(rows));
  }
  for (const KvPut* record : todo) Cache(*record, epoch);
  return {};
}

Result<std::vector<const KvPut*>> KvStoreImpl::NewOnes(std::span<const KvPut> records) {
  std::vector<const KvPut*> out;
  std::set<Hash128> seen;
  for (const KvPut& record : records) {
    INFERSCALE_ASSIGN(const auto row, catalog_->Find(record.info.key));
    if (!row && seen.insert(record.info.key).second) out.push_back(&record);
  }
  return out;
}

Status KvStoreImpl::CheckQuotas(std::span<const KvPut* const> records) {
  uint64_t bytes = 0;
  std::map<std::string_view, uint64_t> tenants;
  for (const KvPut* record : records) {
    const uint64_t needed = RecordBytes(record->info, record->payload.size());
    bytes += needed;
    tenants[record->info.tenant] += needed;
  }
  if (options_.disk_bytes != 0) {
    INFERSCALE_ASSIGN(const uint64_t used, DiskBytes());
    if (used + bytes > options_.disk_bytes) {
      return Fail(Code::kExhausted, "disk quota of {} bytes: {} used, {} more needed",
                  options_.disk_bytes, used, bytes);
    }
  }
  if (options_.tenant_disk_bytes == 0) return {};
  for (const auto& [tenant, needed] : tenants) {
    INFERSCALE_ASSIGN(const uint64_t used, catalog_->TenantBytes(tenant));
    if (used + needed > options_.tenant_disk_bytes) {
      return Fail(Code::kExhausted, "disk quota of {} bytes per tenant: {} used, {} more needed",
                  options_.tenant_disk_bytes, used, needed);
    }
  }
  return {};
}

Result<uint64_t> KvStoreImpl::DiskBytes(uint64_t* segments) {
  INFERSCALE_ASSIGN(const auto paths, ListSegments(env_, options_.dir));
  uint64_t bytes = 0;
  for (const std::string& path : paths) {
    const auto used = env_.AllocatedBytes(options_.dir + "/" + path);
    if (!used && used.error().code == Code::kNotFound) continue;  // compacted away just now
    INFERSCALE_TRY(used);
    bytes += *used;
  }
  if (segments != nullptr) *segments = paths.size();
  return bytes;
}

Result<std::vector<CatalogRow>> KvStoreImpl::Append(std::span<const KvPut* const> records) {
  std::vector<CatalogRow> rows;
  std::set<Fingerprint> touched;
  for (const KvPut* record : records) {
    const KvRecordInfo& info = record->info;
    auto place = AppendOne(*record);
    if (!place) {
      writers_.erase(info.fingerprint);
      return tl::unexpected(std::move(place).error());
    }
    rows.push_back({info.key, info.tenant, info.fingerprint, std::move(*place),
                    record->payload.size(), info.tokens.size()});
    touched.insert(info.fingerprint);
  }
  for (const Fingerprint& fingerprint : touched) {
    const Status synced = writers_.at(fingerprint)->Sync();
    // A failed sync says nothing about which bytes reached the disk, and a second one may succeed
    // without them.
    if (!synced) writers_.erase(fingerprint);
    INFERSCALE_TRY(synced);
  }
  return rows;
}

Result<RecordPlace> KvStoreImpl::AppendOne(const KvPut& record) {
  std::unique_ptr<SegmentWriter>& writer = writers_[record.info.fingerprint];
  if (writer != nullptr && writer->size() >= options_.segment_bytes) {
    INFERSCALE_TRY(writer->Sync());
    writer.reset();
  }
  if (writer == nullptr) {
    INFERSCALE_ASSIGN(writer,
                      SegmentWriter::Create(env_, clock_, options_.dir, record.info.fingerprint));
  }
  return writer->Append(record.info, record.payload);
}

// A record that was just encoded is about to be used. No room is no error.
void KvStoreImpl::Cache(const KvPut& record, uint64_t epoch) {
  const auto acquired =
      arena_->Acquire(record.info.key, record.info.tenant, record.payload.size(), epoch);
  if (!acquired || acquired->slot == nullptr) return;
  std::memcpy(acquired->slot->bytes().data(), record.payload.data(), record.payload.size());
  (void)acquired->slot->Publish(record.info);
}

Result<std::shared_ptr<const PinnedKv>> KvStoreImpl::Get(const Hash128& key,
                                                         const Fingerprint& fingerprint,
                                                         const KvShape& shape) {
  // Each turn but the last means that another thread or process moved or erased something just
  // then.
  constexpr int kTurns = 100;
  for (int turn = 0; turn < kTurns; ++turn) {
    const uint64_t epoch = arena_->epoch();
    INFERSCALE_ASSIGN(const auto row, catalog_->Find(key));
    if (!row) {
      ++misses_;
      arena_->Forget({&key, 1});  // another process may have erased it
      return Fail(Code::kNotFound, "no record {}", key.Hex());
    }
    // The row alone decides only if the record agrees with it.
    const bool other =
        row->fingerprint != fingerprint || row->payload_bytes != row->tokens * shape.TokenBytes();
    auto pin = other ? Refuse(*row) : Fetch(*row, epoch);
    if (!pin && Damaged(pin.error().code)) {
      // Unless it was moved or erased meanwhile, the catalog names bytes that are not there.
      const CatalogRow rows[] = {*row};
      INFERSCALE_ASSIGN(const uint64_t dropped, catalog_->Drop(rows));
      if (dropped == 0) continue;
      ++corrupt_records_;
      return Fail(Code::kCorrupt, "{}", pin.error().message);
    }
    if (!pin) return pin;
    if (*pin == nullptr) continue;
    if (const KvShape found = (*pin)->view().shape; found != shape) {
      return Fail(Code::kConflict, "record {} is {}, not {}", key.Hex(), found.ToString(),
                  shape.ToString());
    }
    return pin;
  }
  // Nothing moves that often: rather the catalog contradicts itself.
  INFERSCALE_ASSIGN(const bool sound, catalog_->Verify());
  return Fail(sound ? Code::kTransient : Code::kCorrupt,
              "record {} can't be read: its place keeps changing", key.Hex());
}

// The record from the arena or the disk; nothing if the catalog has to be asked again.
Result<std::shared_ptr<const PinnedKv>> KvStoreImpl::Fetch(const CatalogRow& row, uint64_t epoch) {
  INFERSCALE_ASSIGN(auto acquired, arena_->Acquire(row.key, row.tenant, row.payload_bytes, epoch));
  if (acquired.slot == nullptr) return std::move(acquired.pin);
  ++disk_reads_;
  INFERSCALE_ASSIGN(auto info, ReadRecord(env_, options_.dir, row, acquired.slot->bytes()));
  return acquired.slot->Publish(std::move(info));
}

Result<std::shared_ptr<const PinnedKv>> KvStoreImpl::Refuse(const CatalogRow& row) {
  INFERSCALE_TRY(ReadRecordInfo(env_, options_.dir, row));
  return Fail(Code::kConflict, "record {} is of another model than asked for", row.key.Hex());
}

bool KvStoreImpl::Contains(const Hash128& key) {
  const auto row = catalog_->Find(key);
  return row && row->has_value();
}

Result<std::vector<size_t>> KvStoreImpl::Missing(std::span<const Hash128> keys) {
  INFERSCALE_ASSIGN(const auto rows, lookup_.Rows(keys));
  std::vector<size_t> missing;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == nullptr) missing.push_back(i);
  }
  return missing;
}

std::vector<Result<std::shared_ptr<const PinnedKv>>> KvStoreImpl::GetResident(
    const KvOwner& owner, std::span<const Hash128> keys) {
  std::vector<Result<std::shared_ptr<const PinnedKv>>> out(keys.size());
  // Pinned first, so that what the catalog says then can't be older than what is handed out.
  auto pins = arena_->Hold(keys);
  const auto rows = lookup_.Rows(keys);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!rows) {
      out[i] = tl::unexpected(rows.error());
    } else if ((*rows)[i] == nullptr) {
      ++misses_;
      arena_->Forget({&keys[i], 1});
      out[i] = Fail(Code::kNotFound, "no record {}", keys[i].Hex());
    } else if (!owner.Sees((*rows)[i]->tenant)) {
      out[i] = Fail(Code::kNotFound, "no record {} of this tenant", keys[i].Hex());
    } else if (pins[i] != nullptr && (*rows)[i]->fingerprint == owner.fingerprint &&
               pins[i]->view().shape == owner.shape) {
      out[i] = std::move(pins[i]);
    }
  }
  return out;
}

std::vector<Status> KvStoreImpl::Check(const KvOwner& owner, std::span<const KvClaim> claims) {
  std::vector<Hash128> keys;
  for (const KvClaim& claim : claims) keys.push_back(claim.key);
  auto rows = lookup_.Rows(keys);
  std::vector<Status> out(claims.size());
  for (size_t i = 0; i < claims.size(); ++i) {
    if (rows) {
      out[i] = CheckOne(owner, claims[i], std::move((*rows)[i]));
    } else {
      out[i] = tl::unexpected(rows.error());
    }
  }
  return out;
}

Status KvStoreImpl::CheckOne(const KvOwner& owner, const KvClaim& claim, Lookup::Row row) {
  const std::string key = claim.key.Hex();
  Result<std::shared_ptr<const KvRecordInfo>> info;
  // Moved or erased while it was read: the row is another one now.
  constexpr int kTurns = 100;
  for (int turn = 0; turn < kTurns; ++turn) {
    if (row == nullptr || !owner.Sees(row->tenant)) {
      return Fail(Code::kNotFound, "no record {}{}", key, row ? " of this tenant" : "");
    }
    info = lookup_.Info(row);
    if (info || !Damaged(info.error().code)) break;
    INFERSCALE_ASSIGN(const uint64_t dropped, catalog_->Drop({row.get(), 1}));
    if (dropped != 0) {
      ++corrupt_records_;
      return Fail(Code::kCorrupt, "{}", info.error().message);
    }
    INFERSCALE_ASSIGN(auto rows, lookup_.Rows({&claim.key, 1}));
    row = std::move(rows.front());
  }
  INFERSCALE_TRY(info);
  const KvRecordInfo& record = **info;
  if (record.fingerprint != owner.fingerprint || record.shape != owner.shape) {
    return Fail(Code::kConflict, "record {} is of another model than asked for", key);
  }
  const uint64_t end = uint64_t{claim.record_token} + claim.expected.size();
  if (end > record.tokens.size()) {
    return Fail(Code::kInvalid, "tokens {} to {} of record {}, which has {}", claim.record_token,
                end, key, record.tokens.size());
  }
  if (!std::equal(claim.expected.begin(), claim.expected.end(),
                  record.tokens.begin() + claim.record_token)) {
    return Fail(Code::kConflict, "record {} is of other tokens", key);
  }
  return {};
}

Status KvStoreImpl::Erase(std::span<const Hash128> keys) {
  INFERSCALE_TRY(catalog_->Erase(keys));
  arena_->Forget(keys);
  return {};
}

Result<CompactReport> KvStoreImpl::Compact(bool full) {
  INFERSCALE_ASSIGN(const auto one_at_a_time, env_.Lock(options_.dir + "/compact.lock"));
  if (full) {
    // What a damaged index hides would stay on the disk.
    INFERSCALE_TRY(catalog_->Verify());
    // Sealed, so that they can be rewritten; the next Put begins new ones.
    MutexLock lock(write_mutex_);
    writers_.clear();
  }
  Compaction compaction(env_, clock_, options_, *catalog_, full);
  const auto report = compaction.Run();
  corrupt_records_ += compaction.corrupt_records();
  INFERSCALE_TRY(report);
  if (full) INFERSCALE_TRY(catalog_->Scrub());
  INFERSCALE_TRY(ForgetErased());
  return *report;
}

Status KvStoreImpl::SealWhereAsked() {
  {
    MutexLock lock(write_mutex_);
    // Whatever was put is synced: the next Put begins a new segment.
    if (std::erase_if(writers_, [](const auto& writer) {
          return writer.second != nullptr && writer.second->asked_to_end();
        }) == 0) {
      return {};
    }
  }
  return ForgetErased();
}

// What other processes erased leaves this process's memory too.
Status KvStoreImpl::ForgetErased() {
  std::vector<Hash128> gone;
  for (const Hash128& key : arena_->Keys()) {
    INFERSCALE_ASSIGN(const auto row, catalog_->Find(key));
    if (!row) gone.push_back(key);
  }
  if (!gone.empty()) arena_->Forget(gone);
  return {};
}

KvStoreStats KvStoreImpl::stats() {
  KvStoreStats out;
  out.recovery =
      catalog_->was_damaged() && recovery_ != Recovery::kTransient ? Recovery::kCorrupt : recovery_;
  const CatalogTotals totals = catalog_->Totals().value_or(CatalogTotals{});
  out.records = totals.records;
  out.live_bytes = totals.bytes;
  out.disk_bytes = DiskBytes(&out.segments).value_or(0);
  const ArenaStats arena = arena_->stats();
  out.arena_bytes = arena.bytes;
  out.arena_budget = arena.budget;
  out.slab_refused = arena.slab_refused;
  out.pinned_bytes = arena.pinned_bytes;
  out.arena_hits = arena.hits;
  out.evictions = arena.evictions;
  out.disk_reads = disk_reads_;
  out.misses = misses_;
  out.corrupt_records = corrupt_records_;
  return out;
}

// Making or repairing a catalog is for one process at a time; a quarter of a minute is enough.
Result<std::unique_ptr<FileLock>> LockForOpening(Env& env, const std::string& dir) {
  constexpr std::chrono::milliseconds kPause(25);
  constexpr int kAttempts = 600;
  for (int attempt = 1;; ++attempt) {
    auto lock = env.Lock(dir + "/open.lock");
    if (lock || lock.error().code != Code::kConflict) return lock;
    if (attempt == kAttempts) {
      return Fail(Code::kTransient, "{}: another process has been opening it for too long", dir);
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

Result<std::unique_ptr<KvStore>> KvStore::Open(Env& env, const Clock& clock,
                                               KvStoreOptions options) {
  if (options.dir.empty()) return Fail(Code::kInvalid, "a KV store needs a directory");
  INFERSCALE_TRY(env.CreateDirs(options.dir));
  INFERSCALE_ASSIGN(const auto opening, LockForOpening(env, options.dir));
  const std::string catalog_path = options.dir + "/catalog.db";
  // Made here, because SQLite would let every user read it; its log gets the same permissions.
  if (const auto made = env.Create(catalog_path); !made && made.error().code != Code::kConflict) {
    return tl::unexpected(made.error());
  }
  INFERSCALE_ASSIGN(auto catalog, Catalog::Open(catalog_path));
  INFERSCALE_TRY(env.SyncDir(options.dir));
  const std::string parent = std::filesystem::absolute(options.dir).parent_path();
  INFERSCALE_TRY(env.SyncDir(parent));
  INFERSCALE_ASSIGN(auto arena, Arena::Create(options.arena_bytes, options.tenant_arena_bytes,
                                              options.arena_slab));
  auto store = std::make_unique<KvStoreImpl>(env, clock, std::move(options), std::move(catalog),
                                             std::move(arena));
  INFERSCALE_TRY(store->Recover());
  return store;
}

}  // namespace inferscale
