// Reading records from the disk with several threads: the next ones are on their way while one is
// used.
#ifndef INFERSCALE_STORE_RECORD_READERS_H_
#define INFERSCALE_STORE_RECORD_READERS_H_

#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "store/kv_store.h"

namespace inferscale {

// Thread-safe.
class RecordReaders {
 public:
  using Record = Result<std::shared_ptr<const PinnedKv>>;
  // Called on the reader's thread for each key in order: its index, and KvStore::Get's result or
  // kNotFound for another tenant's.
  using Take = std::function<void(size_t index, Record record)>;

  // Without threads records are read one by one.
  RecordReaders(std::shared_ptr<KvStore> store, size_t threads);
  const std::shared_ptr<KvStore>& store() const { return store_; }

  // Returns once all are taken. Where the arena has no room because of pins, records that were read
  // ahead are let go, `make_room` may let go of more, and the rest is read one by one.
  void Read(const KvOwner& owner, std::span<const Hash128> keys, const Take& take,
            const std::function<void()>& make_room = {});

 private:
  const std::shared_ptr<KvStore> store_;
  const size_t ahead_;  // records that one Read has on their way
  boost::asio::thread_pool pool_;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_RECORD_READERS_H_
