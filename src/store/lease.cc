#include "store/lease.h"

#include <algorithm>
#include <utility>

namespace inferscale {

KvLease::KvLease(std::shared_ptr<KvStore> store, std::shared_ptr<DeviceArena> arena, KvOwner owner,
                 std::vector<Hash128> keys)
    : store_(std::move(store)),
      arena_(std::move(arena)),
      owner_(std::move(owner)),
      keys_(std::move(keys)) {}

Result<FactKvView> KvLease::Record(size_t i) const {
  if (arena_ == nullptr) {
    const auto& pin = host_pins_.at(i);
    if (!pin) return tl::unexpected(pin.error());
    if (*pin != nullptr) return (*pin)->view();
  } else {
    const Result<DeviceKv>& kv = device_pins_->records().at(i);
    if (!kv) return tl::unexpected(kv.error());
    if (kv->data != nullptr) {
      return FactKvView{kv->shape, static_cast<uint32_t>(kv->tokens.size()), kv->data};
    }
  }
  return Fail(Code::kCancelled, "record {} was not loaded: the tier ended", keys_[i].Hex());
}

Status KvLease::Await(DeviceStream stream) {
  return arena_ == nullptr ? Status{} : device_pins_->Await(stream);
}

bool KvLease::TakeResident() {
  if (arena_ != nullptr) {
    device_pins_ = arena_->Hold(Request());
    return device_pins_->IsLoaded();
  }
  host_pins_ = store_->GetResident(owner_, keys_);
  return std::none_of(host_pins_.begin(), host_pins_.end(),
                      [](const auto& pin) { return pin && *pin == nullptr; });
}

void KvLease::Load(RecordReaders& readers) {
  if (arena_ != nullptr) {
    arena_->Load(Request(), *device_pins_);
    return;
  }
  std::vector<Hash128> keys;
  std::vector<size_t> places;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (!host_pins_[i] || *host_pins_[i] != nullptr) continue;
    keys.push_back(keys_[i]);
    places.push_back(i);
  }
  readers.Read(owner_, keys, [&](size_t i, RecordReaders::Record record) {
    host_pins_[places[i]] = std::move(record);
  });
}

}  // namespace inferscale
