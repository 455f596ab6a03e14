// The device tier: a slab of device memory with a hard budget, holding whole records that are in
// use or were lately.
//
// Nothing here waits for the device. Every write into the slab goes through one copy stream, so
// that a place is safe to give away as soon as that stream waits for whoever still reads it; and
// whoever reads a record makes its own stream wait for the copy.
#ifndef INFERSCALE_STORE_DEVICE_ARENA_H_
#define INFERSCALE_STORE_DEVICE_ARENA_H_

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "ops/device.h"
#include "store/arena_policy.h"
#include "store/kv_store.h"
#include "store/record_readers.h"
#include "store/slab_allocator.h"

namespace inferscale {

struct DeviceArenaOptions {
  uint64_t budget = 0;         // bytes of device memory, taken at once
  uint64_t tenant_budget = 0;  // per tenant; 0: no limit
};

struct DeviceArenaStats {
  uint64_t bytes = 0;
  uint64_t budget = 0;
  uint64_t pinned_bytes = 0;  // held, or released and perhaps still read
  uint64_t hits = 0;
  uint64_t loads = 0;  // records that were copied in
  uint64_t loaded_bytes = 0;
  uint64_t copies = 0;  // records that lie side by side share one
  uint64_t evictions = 0;
  uint64_t overtakes = 0;  // the copy stream had to wait for readers, because nothing else was left
};

struct DeviceRequest {
  KvOwner owner;
  std::span<const Hash128> keys;
};

// A record in device memory, to be read by work on a stream.
struct DeviceKv {
  KvShape shape;
  std::span<const Token> tokens;  // host memory; compared with the prompt's before it is injected
  std::byte* data = nullptr;      // a FactKv, aligned to 256 bytes
  Tier tier = Tier::kDevice;      // where it was
};

struct DeviceEntry;
class DeviceArena;

// Records that stay in place while this lives, and until the work that reads them has passed. For
// one thread at a time.
class DevicePins {
 public:
  DevicePins(std::shared_ptr<DeviceArena> arena, size_t count);
  ~DevicePins() { Release(); }
  DevicePins(const DevicePins&) = delete;
  DevicePins& operator=(const DevicePins&) = delete;

  // One for each key of the request, in its order: what is missing doesn't cost the others. Without
  // data: not loaded yet.
  const std::vector<Result<DeviceKv>>& records() const { return records_; }
  bool IsLoaded() const;

  // Work that `stream` is given from now on may read the records. kTransient if it can't be made to
  // wait for the copies.
  Status Await(DeviceStream stream);
  // Nothing that reads them will be given to a stream any more. They stay in place until the
  // streams that awaited them have passed what they have now.
  void Release();

 private:
  friend class DeviceArena;
  std::shared_ptr<DeviceArena> arena_;  // null once released
  std::vector<DeviceStream> streams_;   // that may read
  std::vector<DeviceEntry*> entries_;   // null where records_ has an error, or is not loaded
  std::vector<Result<DeviceKv>> records_;
};

// Thread-safe; threads that call it have bound the device. Pins keep the arena alive; streams that
// await them must live until they are released.
class DeviceArena : public std::enable_shared_from_this<DeviceArena> {
 public:
  // For records of the readers' store. kExhausted if the device has no such memory.
  static Result<std::shared_ptr<DeviceArena>> Create(std::shared_ptr<Device> device,
                                                     std::shared_ptr<RecordReaders> readers,
                                                     const DeviceArenaOptions& options);
  // Waits for the device, once.
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // Pins what is resident and starts the copies of what is in host memory; Load is for the rest.
  std::shared_ptr<DevicePins> Hold(const DeviceRequest& request);
  // Reads the rest from the store; each is copied while the next are read. Errors of single records
  // are KvStore::Get's; kNotFound too for another tenant's; kExhausted if pins here or in the host
  // arena, which holds records while they are copied, leave no room.
  void Load(const DeviceRequest& request, DevicePins& pins);
  // All three: Hold, Load and Await, whose error it has.
  Result<std::shared_ptr<DevicePins>> Get(const DeviceRequest& request, DeviceStream stream);

  // Copies what is not resident yet, as far as there is room. Returns how many of the records are
  // resident then, perhaps still on their way. Waits for the disk.
  size_t Prefetch(const DeviceRequest& request);

  // After KvStore::Erase, which alone makes records unreachable here too: takes their memory back
  // and wipes it, as soon as nothing reads it any more.
  void Forget(std::span<const Hash128> keys);

  DeviceArenaStats stats();

 private:
  friend class DevicePins;
  // On its way from the store to the slab.
  struct Loaded {
    size_t index = 0;  // in the request
    std::shared_ptr<const PinnedKv> host;
    DeviceEntry* entry = nullptr;
    bool is_new = false;
  };
  struct Copying {
    DeviceEvent event;
    std::vector<std::shared_ptr<const PinnedKv>> sources;  // in place until the event
  };
  struct Reading {
    DeviceEvent event;
    std::vector<DeviceEntry*> entries;  // pinned until the event
  };

  DeviceArena(std::shared_ptr<Device> device, std::shared_ptr<RecordReaders> readers,
              const DeviceArenaOptions& options);

  uint64_t PinResident(const DeviceRequest& request, DevicePins& pins);
  void DropErased(const DeviceRequest& request, DevicePins& pins);
  void LoadFromHost(const DeviceRequest& request, uint64_t epoch, DevicePins& pins);
  void Place(const DeviceRequest& request, uint64_t epoch, std::vector<Loaded>& loaded,
             DevicePins& pins);
  Status Await(const DevicePins& pins, DeviceStream stream);
  void Release(DevicePins& pins);
  bool ReleaseBehind(const std::vector<DeviceEntry*>& entries, DeviceStream stream)
      REQUIRES(mutex_);

  Result<DeviceEntry*> Find(const DeviceRequest& request, const Hash128& key) REQUIRES(mutex_);
  Result<DeviceEntry*> Admit(const DeviceRequest& request, uint64_t epoch, Loaded& loaded)
      REQUIRES(mutex_);
  Result<uint64_t> MakeRoom(const std::string& tenant, uint64_t bytes) REQUIRES(mutex_);
  Status CopyIn(std::span<Loaded> loaded) REQUIRES(mutex_);
  Status CopyRun(std::span<const Loaded> run) REQUIRES(mutex_);
  Status MarkCopies(std::span<Loaded> loaded) REQUIRES(mutex_);
  void Poll() REQUIRES(mutex_);
  Status Overtake(std::list<Reading>::iterator reading) REQUIRES(mutex_);
  void Finish(std::list<Reading>::iterator reading) REQUIRES(mutex_);
  void Pin(DeviceEntry* entry, Tier tier, size_t index, DevicePins& pins) REQUIRES(mutex_);
  void Unpin(DeviceEntry* entry) REQUIRES(mutex_);
  void Hide(DeviceEntry* entry) REQUIRES(mutex_);
  void Evict(ArenaPolicy::Id id) REQUIRES(mutex_);
  void Free(DeviceEntry* entry) REQUIRES(mutex_);
  Result<DeviceEvent> TakeEvent() REQUIRES(mutex_);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<RecordReaders> readers_;
  const std::shared_ptr<KvStore> store_;
  DeviceMemory slab_;                   // these two are set before the arena is shared
  DeviceStream copy_stream_ = nullptr;  // null: not made

  Mutex mutex_;
  ArenaPolicy policy_ GUARDED_BY(mutex_);
  SlabAllocator allocator_ GUARDED_BY(mutex_);
  std::unordered_map<ArenaPolicy::Id, std::unique_ptr<DeviceEntry>> entries_ GUARDED_BY(mutex_);
  std::unordered_map<Hash128, DeviceEntry*> index_ GUARDED_BY(mutex_);  // those that can be found
  ArenaPolicy::Id next_id_ GUARDED_BY(mutex_) = 1;
  uint64_t epoch_ GUARDED_BY(mutex_) = 0;  // rises whenever something is forgotten
  // Copies in the order of the copy stream, numbered from 1; those up to copied_ are done, and
  // copying_ holds the rest.
  std::deque<Copying> copying_ GUARDED_BY(mutex_);
  uint64_t copied_ GUARDED_BY(mutex_) = 0;
  std::list<Reading> reading_ GUARDED_BY(mutex_);  // oldest first
  std::vector<DeviceEvent> spare_events_ GUARDED_BY(mutex_);
  DeviceArenaStats counts_ GUARDED_BY(mutex_);
};

// Host memory that `device` copies from at full speed, for KvStoreOptions::arena_slab.
SlabSource PinnedSlab(std::shared_ptr<Device> device);

}  // namespace inferscale

#endif  // INFERSCALE_STORE_DEVICE_ARENA_H_
