// Records on their way from an engine's cache to the disk: room for them while they are captured,
// and the thread that stores them once the device has passed what was captured.
#ifndef INFERSCALE_STORE_CAPTURE_QUEUE_H_
#define INFERSCALE_STORE_CAPTURE_QUEUE_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "kv/fact_kv.h"
#include "ops/device.h"
#include "store/kv_store.h"
#include "store/slab_allocator.h"

namespace inferscale {

struct CaptureStats {
  uint64_t stored = 0;
  uint64_t failed = 0;
  uint64_t waiting = 0;  // committed, and not stored yet
  uint64_t bytes = 0;    // of room in use
};

class CaptureQueue;

// A record being captured. For one thread at a time. What is not committed when it ends is dropped.
class KvCapture {
 public:
  KvCapture(std::shared_ptr<CaptureQueue> queue, KvRecordInfo info, uint64_t offset,
            std::byte* data);
  ~KvCapture();
  KvCapture(const KvCapture&) = delete;
  KvCapture& operator=(const KvCapture&) = delete;

  const KvRecordInfo& info() const { return info_; }
  const std::shared_ptr<Device>& device() const;  // null: in host memory
  // Where to capture to. Aligned to 256 bytes.
  MutableFactKvView view() const;

  // These tokens of a layer are written, or will be by what a stream was given.
  void Wrote(uint32_t layer, uint32_t first, uint32_t tokens);
  // Which stream; it lives until the capture is committed or dropped. Nothing without a device.
  void WroteOn(DeviceStream stream);
  // kInvalid, naming what is missing, unless all of it was written: the rest holds what others
  // left.
  Status CheckWhole() const;

  // To be stored as soon as `stream`, and those that it was written on, have passed what they have.
  // CheckWhole's error; kCancelled if the tier has ended. The capture is gone in any case.
  static Status Commit(std::unique_ptr<KvCapture> capture, DeviceStream stream);

 private:
  friend class CaptureQueue;
  using Run = std::pair<uint32_t, uint32_t>;  // tokens [first, second)

  const std::shared_ptr<CaptureQueue> queue_;
  bool committed_ = false;
  KvRecordInfo info_;
  const uint64_t offset_;
  std::byte* const data_;
  std::vector<DeviceStream> streams_;
  std::vector<std::vector<Run>> written_;  // of each layer, sorted and apart
};

// Thread-safe; threads that call it have bound the device.
class CaptureQueue : public std::enable_shared_from_this<CaptureQueue> {
 public:
  // `device` may be null: then room is in host memory. With a device there is as much pinned host
  // memory too, where records wait for the disk. kExhausted if there is no such memory.
  static Result<std::shared_ptr<CaptureQueue>> Create(std::shared_ptr<Device> device,
                                                      std::shared_ptr<KvStore> store,
                                                      uint64_t bytes);
  ~CaptureQueue();
  CaptureQueue(const CaptureQueue&) = delete;
  CaptureQueue& operator=(const CaptureQueue&) = delete;

  // Room for one record. kExhausted if there is none now; kInvalid for what can't be a record.
  Result<std::unique_ptr<KvCapture>> Begin(KvRecordInfo info);
  // Waits until all that was committed is stored. The first error since the last time, if any.
  Status Flush();
  // Stores what was committed and ends the thread.
  void Stop();

  CaptureStats stats();

 private:
  friend class KvCapture;
  struct Item {
    KvRecordInfo info;
    uint64_t offset = 0;
    uint64_t bytes = 0;                    // of the record
    bool keep = false;                     // else its room is only given back
    std::vector<DeviceEvent> events = {};  // to wait for
    const std::byte* payload = nullptr;    // in host memory
    bool lost = false;  // its room may still be written to, for all that is known
  };

  CaptureQueue(std::shared_ptr<Device> device, std::shared_ptr<KvStore> store, uint64_t bytes)
      : device_(std::move(device)), store_(std::move(store)), allocator_(bytes), budget_(bytes) {}

  Status Enqueue(KvCapture& capture, bool keep);
  void Run();
  // What was committed by now, at least one; empty: this is the end.
  std::vector<Item> NextBatch();
  void Fetch(std::vector<Item>& batch);
  void Store(const std::vector<Item>& batch);
  void Count(size_t records, const Status& status);
  void Free(const std::vector<Item>& batch);

  const std::shared_ptr<Device> device_;  // null without one
  const std::shared_ptr<KvStore> store_;
  DeviceMemory slab_, staging_;  // these four are set before the queue is shared
  std::unique_ptr<std::byte, void (*)(void*)> host_slab_{nullptr, std::free};
  std::byte* data_ = nullptr;      // of either slab
  DeviceStream stream_ = nullptr;  // of the copies to the host

  Mutex mutex_;
  CondVar changed_;
  SlabAllocator allocator_ GUARDED_BY(mutex_);
  const uint64_t budget_;
  std::vector<Item> queue_ GUARDED_BY(mutex_);
  bool busy_ GUARDED_BY(mutex_) = false;      // the thread has a batch
  bool stopping_ GUARDED_BY(mutex_) = false;  // no more is taken
  CaptureStats counts_ GUARDED_BY(mutex_);
  std::optional<Error> failure_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_CAPTURE_QUEUE_H_
