#include "store/device_arena.h"

#include <algorithm>
#include <iterator>

namespace inferscale {

namespace {

constexpr uint64_t kAlignment = 256;

}  // namespace

struct DeviceEntry {
  ArenaPolicy::Id id = 0;
  Hash128 key;
  std::string tenant;
  Fingerprint fingerprint;
  KvShape shape;
  std::vector<Token> tokens;
  uint64_t offset = 0;
  uint64_t slot_bytes = 0;
  uint64_t copy = 0;       // number of the copy that brings it in
  bool forgotten = false;  // goes with its last pin, and its bytes are wiped
};

DevicePins::DevicePins(std::shared_ptr<DeviceArena> arena, size_t count)
    : arena_(std::move(arena)), entries_(count, nullptr), records_(count, DeviceKv{}) {}

bool DevicePins::IsLoaded() const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i] == nullptr && records_[i]) return false;
  }
  return true;
}

Status DevicePins::Await(DeviceStream stream) {
  INFERSCALE_TRY(arena_->Await(*this, stream));
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    streams_.push_back(stream);
  }
  return {};
}

void DevicePins::Release() {
  if (const auto arena = std::exchange(arena_, nullptr)) arena->Release(*this);
}

Result<std::shared_ptr<DeviceArena>> DeviceArena::Create(std::shared_ptr<Device> device,
                                                         std::shared_ptr<RecordReaders> readers,
                                                         const DeviceArenaOptions& options) {
  DeviceArenaOptions rounded = options;
  rounded.budget = options.budget / kAlignment * kAlignment;
  INFERSCALE_TRY(device->Bind());
  std::shared_ptr<DeviceArena> arena(
      new DeviceArena(std::move(device), std::move(readers), rounded));
  INFERSCALE_ASSIGN(arena->slab_, arena->device_->Alloc(rounded.budget));
  INFERSCALE_ASSIGN(arena->copy_stream_, arena->device_->CreateStream());
  return arena;
}

DeviceArena::DeviceArena(std::shared_ptr<Device> device, std::shared_ptr<RecordReaders> readers,
                         const DeviceArenaOptions& options)
    : device_(std::move(device)),
      readers_(std::move(readers)),
      store_(readers_->store()),
      policy_(options.budget, options.tenant_budget),
      allocator_(options.budget) {}

DeviceArena::~DeviceArena() {
  if (copy_stream_ == nullptr) return;
  for (const Reading& reading : reading_) (void)device_->Wait(copy_stream_, reading.event);
  (void)device_->Synchronize(copy_stream_);
  (void)device_->DestroyStream(copy_stream_);
}

std::shared_ptr<DevicePins> DeviceArena::Hold(const DeviceRequest& request) {
  auto pins = std::make_shared<DevicePins>(shared_from_this(), request.keys.size());
  const uint64_t epoch = PinResident(request, *pins);
  DropErased(request, *pins);
  LoadFromHost(request, epoch, *pins);
  return pins;
}

Result<std::shared_ptr<DevicePins>> DeviceArena::Get(const DeviceRequest& request,
                                                     DeviceStream stream) {
  auto pins = Hold(request);
  Load(request, *pins);
  INFERSCALE_TRY(pins->Await(stream));
  return pins;
}

Status DeviceArena::Await(const DevicePins& pins, DeviceStream stream) {
  MutexLock lock(mutex_);
  uint64_t newest = 0;
  for (const DeviceEntry* entry : pins.entries_) {
    if (entry != nullptr) newest = std::max(newest, entry->copy);
  }
  // Copies end in order, so the newest is the one to wait for.
  if (newest <= copied_) return {};
  return device_->Wait(stream, copying_[newest - copied_ - 1].event);
}

size_t DeviceArena::Prefetch(const DeviceRequest& request) {
  // All stay pinned until the end, or a group that doesn't fit would push itself out.
  std::vector<std::shared_ptr<DevicePins>> all;
  size_t resident = 0;
  for (const Hash128& key : request.keys) {
    DeviceRequest one = request;
    one.keys = {&key, 1};
    auto pins = Hold(one);
    Load(one, *pins);
    const Result<DeviceKv>& record = pins->records().front();
    const bool full = !record && record.error().code == Code::kExhausted;
    if (record) ++resident;
    all.push_back(std::move(pins));
    if (full) break;
  }
  return resident;
}

// Returns the epoch of what it found.
uint64_t DeviceArena::PinResident(const DeviceRequest& request, DevicePins& pins) {
  MutexLock lock(mutex_);
  Poll();
  for (size_t i = 0; i < request.keys.size(); ++i) {
    const Result<DeviceEntry*> entry = Find(request, request.keys[i]);
    if (!entry) pins.records_[i] = tl::unexpected(entry.error());
    if (!entry || *entry == nullptr) continue;
    ++counts_.hits;
    Pin(*entry, Tier::kDevice, i, pins);
  }
  return epoch_;
}

// Another process may have erased what was resident. Looked for after it was pinned, so that what
// is found now can't be older than the answer.
void DeviceArena::DropErased(const DeviceRequest& request, DevicePins& pins) {
  std::vector<Hash128> keys;
  std::vector<size_t> places;
  for (size_t i = 0; i < request.keys.size(); ++i) {
    if (pins.entries_[i] == nullptr) continue;
    keys.push_back(request.keys[i]);
    places.push_back(i);
  }
  if (keys.empty()) return;
  const auto missing = store_->Missing(keys);
  const auto drop = [&](size_t i, tl::unexpected<Error> error) {
    MutexLock lock(mutex_);
    Unpin(std::exchange(pins.entries_[i], nullptr));
    pins.records_[i] = std::move(error);
  };
  if (!missing) {
    for (const size_t i : places) drop(i, tl::unexpected(missing.error()));
    return;
  }
  for (const size_t m : *missing) {
    Forget({&keys[m], 1});
    drop(places[m], Fail(Code::kNotFound, "no record {}", keys[m].Hex()));
  }
}

void DeviceArena::LoadFromHost(const DeviceRequest& request, uint64_t epoch, DevicePins& pins) {
  std::vector<Hash128> keys;
  std::vector<Loaded> loaded;
  for (size_t i = 0; i < request.keys.size(); ++i) {
    if (pins.entries_[i] != nullptr || !pins.records_[i]) continue;
    keys.push_back(request.keys[i]);
    loaded.push_back({i, nullptr});
  }
  if (keys.empty()) return;
  auto resident = store_->GetResident(request.owner, keys);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (resident[i]) {
      loaded[i].host = std::move(*resident[i]);
    } else {
      pins.records_[loaded[i].index] = tl::unexpected(std::move(resident[i]).error());
    }
  }
  std::erase_if(loaded, [](const Loaded& one) { return one.host == nullptr; });
  Place(request, epoch, loaded, pins);
}

void DeviceArena::Load(const DeviceRequest& request, DevicePins& pins) {
  uint64_t epoch = 0;
  {
    MutexLock lock(mutex_);
    epoch = epoch_;
  }
  std::vector<Hash128> keys;
  std::vector<size_t> places;
  for (size_t i = 0; i < request.keys.size(); ++i) {
    if (pins.entries_[i] != nullptr || !pins.records_[i]) continue;
    keys.push_back(request.keys[i]);
    places.push_back(i);
  }
  std::vector<Loaded> loaded;
  const auto place = [&] { Place(request, epoch, loaded, pins); };
  const auto take = [&](size_t i, RecordReaders::Record host) {
    if (!host) {
      pins.records_[places[i]] = tl::unexpected(std::move(host).error());
      return;
    }
    const bool from_disk = (*host)->tier() == Tier::kDisk;
    loaded.push_back({places[i], std::move(*host)});
    // Its copy runs while the disk reads the next; what is in memory already goes together.
    if (from_disk) place();
  };
  // Copies that are done hold room in the host arena until somebody looks.
  readers_->Read(request.owner, keys, take, place);
  place();
}

// Gives the loaded records a place and starts their copies, or says why not; takes them off the
// list.
void DeviceArena::Place(const DeviceRequest& request, uint64_t epoch, std::vector<Loaded>& loaded,
                        DevicePins& pins) {
  MutexLock lock(mutex_);
  Poll();
  for (Loaded& one : loaded) {
    const Result<DeviceEntry*> entry = Admit(request, epoch, one);
    if (!entry) {
      pins.records_[one.index] = tl::unexpected(entry.error());
      continue;
    }
    one.entry = *entry;
    Pin(one.entry, one.host->tier(), one.index, pins);
    // A new one came with a pin of its own.
    if (one.is_new) policy_.Unpin(one.entry->id);
  }
  std::erase_if(loaded, [](const Loaded& one) { return one.entry == nullptr; });
  if (const Status copied = CopyIn(loaded); !copied) {
    for (const Loaded& one : loaded) {
      if (one.entry->copy != 0) continue;
      pins.entries_[one.index] = nullptr;
      pins.records_[one.index] = tl::unexpected(copied.error());
      Hide(one.entry);
      one.entry->forgotten = true;
      Unpin(one.entry);
    }
  }
  loaded.clear();
}

// The resident entry, or null. Under the lock and by content: two callers can't bring one in twice.
Result<DeviceEntry*> DeviceArena::Find(const DeviceRequest& request, const Hash128& key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  DeviceEntry* entry = found->second;
  if (!request.owner.Sees(entry->tenant)) {
    return Fail(Code::kNotFound, "no record {} of this tenant", key.Hex());
  }
  if (entry->fingerprint != request.owner.fingerprint || entry->shape != request.owner.shape) {
    return Fail(Code::kConflict, "record {} is of another model than asked for", key.Hex());
  }
  return entry;
}

Result<DeviceEntry*> DeviceArena::Admit(const DeviceRequest& request, uint64_t epoch,
                                        Loaded& loaded) {
  const Hash128& key = request.keys[loaded.index];
  // Something was erased since the store was asked.
  if (epoch_ != epoch && !store_->Contains(key)) {
    return Fail(Code::kNotFound, "no record {}", key.Hex());
  }
  INFERSCALE_ASSIGN(DeviceEntry * resident, Find(request, key));
  if (resident != nullptr) return resident;

  const uint64_t bytes = loaded.host->view().SizeBytes();
  const uint64_t slot_bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  INFERSCALE_ASSIGN(const uint64_t offset, MakeRoom(loaded.host->tenant(), slot_bytes));
  const std::span<const Token> tokens = loaded.host->tokens();
  auto entry = std::make_unique<DeviceEntry>();
  *entry = {.id = next_id_++,
            .key = key,
            .tenant = loaded.host->tenant(),
            .fingerprint = request.owner.fingerprint,
            .shape = request.owner.shape,
            .tokens = {tokens.begin(), tokens.end()},
            .offset = offset,
            .slot_bytes = slot_bytes};
  policy_.Add(entry->id, entry->tenant, slot_bytes);
  loaded.is_new = true;
  DeviceEntry* raw = entry.get();
  index_[key] = raw;
  entries_.emplace(raw->id, std::move(entry));
  return raw;
}

Result<uint64_t> DeviceArena::MakeRoom(const std::string& tenant, uint64_t bytes) {
  while (bytes <= policy_.budget()) {
    const ArenaPolicy::Decision decision = policy_.Admit(tenant, bytes);
    if (decision.room == ArenaPolicy::Room::kEvict) {
      Evict(decision.victim);
      continue;
    }
    if (decision.room == ArenaPolicy::Room::kFits) {
      if (const auto offset = allocator_.Allocate(bytes)) return *offset;
      // There is room, but in pieces.
      if (const auto victim = policy_.Oldest()) {
        Evict(*victim);
        continue;
      }
    }
    // Only what is held is left, and what was released but may still be read.
    if (reading_.empty()) break;
    INFERSCALE_TRY(Overtake(reading_.begin()));
  }
  return Fail(Code::kExhausted, "device arena of {} bytes, {} of them pinned, has no room for {}",
              policy_.budget(), policy_.pinned_bytes(), bytes);
}

// Starts the copies of the new ones. Those that could not be started, or not be waited for, keep
// copy 0.
Status DeviceArena::CopyIn(std::span<Loaded> loaded) {
  Status result;
  bool any = false;
  size_t begin = 0;
  while (begin < loaded.size()) {
    size_t end = begin + 1;
    if (!loaded[begin].is_new) {
      begin = end;
      continue;
    }
    const auto joins = [&](const Loaded& before, const Loaded& next) {
      const FactKvView view = before.host->view();
      return next.is_new && view.data + view.SizeBytes() == next.host->view().data &&
             before.entry->offset + view.SizeBytes() == next.entry->offset;
    };
    while (end < loaded.size() && joins(loaded[end - 1], loaded[end])) ++end;
    const Status copied = CopyRun(loaded.subspan(begin, end - begin));
    for (; begin < end; ++begin) loaded[begin].is_new = copied.has_value();
    any = any || copied;
    if (!copied) result = copied;
  }
  if (any) {
    if (Status marked = MarkCopies(loaded); !marked) return marked;
  }
  return result;
}

Status DeviceArena::CopyRun(std::span<const Loaded> run) {
  uint64_t bytes = 0;
  for (const Loaded& one : run) bytes += one.host->view().SizeBytes();
  INFERSCALE_TRY(device_->Copy(slab_.data() + run.front().entry->offset,
                               run.front().host->view().data, bytes, cuda::kHostToDevice,
                               copy_stream_));
  ++counts_.copies;
  counts_.loads += run.size();
  counts_.loaded_bytes += bytes;
  return {};
}

// Puts an event behind the copies that were started, and keeps what they read until then.
Status DeviceArena::MarkCopies(std::span<Loaded> loaded) {
  Copying copying;
  auto event = TakeEvent();
  Status status;
  if (!event) {
    status = tl::unexpected(event.error());
  } else {
    copying.event = std::move(*event);
    status = device_->Record(copying.event, copy_stream_);
  }
  const uint64_t number = copied_ + copying_.size() + 1;
  if (status) {
    for (const Loaded& one : loaded) {
      if (one.is_new) copying.sources.push_back(one.host);
    }
    copying_.push_back(std::move(copying));
  } else {
    // Without an event: slow, but right.
    INFERSCALE_TRY(device_->Synchronize(copy_stream_));
    copying_.clear();
    copied_ = number;
  }
  for (const Loaded& one : loaded) {
    if (one.is_new) one.entry->copy = number;
  }
  return {};
}

void DeviceArena::Release(DevicePins& pins) {
  MutexLock lock(mutex_);
  Poll();
  std::erase(pins.entries_, nullptr);
  if (pins.entries_.empty()) return;
  bool known = true;
  for (const DeviceStream stream : pins.streams_) {
    known = ReleaseBehind(pins.entries_, stream) && known;
  }
  // Else nobody knows when the readers will have passed: the records keep their places for good.
  if (known) {
    for (DeviceEntry* entry : pins.entries_) Unpin(entry);
  }
}

// Keeps the entries until `stream` has passed what it has now. False if it can't be known when.
bool DeviceArena::ReleaseBehind(const std::vector<DeviceEntry*>& entries, DeviceStream stream) {
  auto event = TakeEvent();
  if (!event || !device_->Record(*event, stream)) return device_->Synchronize(stream).has_value();
  for (const DeviceEntry* entry : entries) policy_.Pin(entry->id);
  reading_.push_back({std::move(*event), entries});
  return true;
}

void DeviceArena::Forget(std::span<const Hash128> keys) {
  MutexLock lock(mutex_);
  ++epoch_;
  for (const Hash128& key : keys) {
    const auto found = index_.find(key);
    if (found == index_.end()) continue;
    DeviceEntry* entry = found->second;
    index_.erase(found);
    entry->forgotten = true;
    if (!policy_.IsPinned(entry->id)) Free(entry);
  }
  // Not left to the next caller: nobody may come.
  for (auto reading = reading_.begin(); reading != reading_.end();) {
    const auto at = reading++;
    const bool held = std::any_of(at->entries.begin(), at->entries.end(),
                                  [](const DeviceEntry* entry) { return entry->forgotten; });
    if (held) (void)Overtake(at);
  }
}

// Lets go of what the device is done with.
void DeviceArena::Poll() {
  while (!copying_.empty() && device_->IsDone(copying_.front().event).value_or(false)) {
    spare_events_.push_back(std::move(copying_.front().event));
    copying_.pop_front();
    ++copied_;
  }
  for (auto reading = reading_.begin(); reading != reading_.end();) {
    const auto at = reading++;
    if (device_->IsDone(at->event).value_or(false)) Finish(at);
  }
}

// Whatever is written into the slab from now on comes after these readers.
Status DeviceArena::Overtake(std::list<Reading>::iterator reading) {
  INFERSCALE_TRY(device_->Wait(copy_stream_, reading->event));
  ++counts_.overtakes;
  Finish(reading);
  return {};
}

void DeviceArena::Finish(std::list<Reading>::iterator reading) {
  for (DeviceEntry* entry : reading->entries) Unpin(entry);
  spare_events_.push_back(std::move(reading->event));
  reading_.erase(reading);
}

void DeviceArena::Pin(DeviceEntry* entry, Tier tier, size_t index, DevicePins& pins) {
  policy_.Pin(entry->id);
  pins.entries_[index] = entry;
  pins.records_[index] = DeviceKv{entry->shape, entry->tokens, slab_.data() + entry->offset, tier};
}

void DeviceArena::Unpin(DeviceEntry* entry) {
  policy_.Unpin(entry->id);
  if (entry->forgotten && !policy_.IsPinned(entry->id)) Free(entry);
}

void DeviceArena::Hide(DeviceEntry* entry) {
  if (const auto found = index_.find(entry->key); found != index_.end() && found->second == entry) {
    index_.erase(found);
  }
}

void DeviceArena::Evict(ArenaPolicy::Id id) {
  ++counts_.evictions;
  DeviceEntry* entry = entries_.at(id).get();
  Hide(entry);
  Free(entry);
}

void DeviceArena::Free(DeviceEntry* entry) {
  // The next owner of the place overwrites it; what was erased must not wait for that.
  if (entry->forgotten) {
    (void)device_->Fill(slab_.data() + entry->offset, 0, entry->slot_bytes, copy_stream_);
  }
  allocator_.Free(entry->offset, entry->slot_bytes);
  policy_.Remove(entry->id);
  entries_.erase(entry->id);
}

Result<DeviceEvent> DeviceArena::TakeEvent() {
  if (spare_events_.empty()) return device_->CreateEvent();
  DeviceEvent event = std::move(spare_events_.back());
  spare_events_.pop_back();
  return event;
}

DeviceArenaStats DeviceArena::stats() {
  MutexLock lock(mutex_);
  Poll();
  DeviceArenaStats stats = counts_;
  stats.bytes = policy_.bytes();
  stats.budget = policy_.budget();
  stats.pinned_bytes = policy_.pinned_bytes();
  return stats;
}

SlabSource PinnedSlab(std::shared_ptr<Device> device) {
  return [device = std::move(device)](uint64_t bytes) -> Result<std::shared_ptr<std::byte>> {
    INFERSCALE_TRY(device->Bind());
    INFERSCALE_ASSIGN(auto memory, device->AllocPinned(bytes));
    const auto owner = std::make_shared<DeviceMemory>(std::move(memory));
    return std::shared_ptr<std::byte>(owner, owner->data());
  };
}

}  // namespace inferscale
