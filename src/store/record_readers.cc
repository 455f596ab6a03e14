#include "store/record_readers.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <deque>
#include <exception>
#include <future>
#include <utility>

namespace inferscale {
namespace {

RecordReaders::Record ReadOne(KvStore& store, const KvOwner& owner, const Hash128& key) {
  try {
    auto record = store.Get(key, owner.fingerprint, owner.shape);
    if (record && !owner.Sees((*record)->tenant())) {
      return Fail(Code::kNotFound, "no record {} of this tenant", key.Hex());
    }
    return record;
  } catch (const std::exception& error) {
    return Fail(Code::kTransient, "read record {}: {}", key.Hex(), error.what());
  }
}

}  // namespace

RecordReaders::RecordReaders(std::shared_ptr<KvStore> store, size_t threads)
    : store_(std::move(store)), ahead_(2 * threads), pool_(std::max<size_t>(threads, 1)) {}

void RecordReaders::Read(const KvOwner& owner, std::span<const Hash128> keys, const Take& take,
                         const std::function<void()>& make_room) {
  // One record has nothing to be read beside it.
  bool parallel = keys.size() > 1 && ahead_ > 0;
  std::deque<std::future<Record>> coming;  // of the keys from the next on
  for (size_t i = 0; i < keys.size(); ++i) {
    while (parallel && coming.size() < ahead_ && i + coming.size() < keys.size()) {
      std::packaged_task<Record()> task([store = store_, owner, key = keys[i + coming.size()]] {
        return ReadOne(*store, owner, key);
      });
      coming.push_back(task.get_future());
      boost::asio::post(pool_, std::move(task));
    }
    Record record;
    if (parallel) {
      record = coming.front().get();
      coming.pop_front();
    } else {
      record = ReadOne(*store_, owner, keys[i]);
    }
    if (!record && record.error().code == Code::kExhausted) {
      for (auto& one : coming) one.wait();
      coming.clear();
      parallel = false;
      if (make_room) make_room();
      record = ReadOne(*store_, owner, keys[i]);
    }
    take(i, std::move(record));
  }
}

}  // namespace inferscale
