#include "store/capture_queue.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "store/segment.h"

namespace inferscale {

namespace {

constexpr uint64_t kAlignment = 256;

uint64_t Rounded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

KvCapture::KvCapture(std::shared_ptr<CaptureQueue> queue, KvRecordInfo info, uint64_t offset,
                     std::byte* data)
    : queue_(std::move(queue)),
      info_(std::move(info)),
      offset_(offset),
      data_(data),
      written_(info_.shape.layers) {}

KvCapture::~KvCapture() {
  if (!committed_) (void)queue_->Enqueue(*this, false);
}

const std::shared_ptr<Device>& KvCapture::device() const { return queue_->device_; }

MutableFactKvView KvCapture::view() const {
  return {info_.shape, static_cast<uint32_t>(info_.tokens.size()), data_};
}

void KvCapture::WroteOn(DeviceStream stream) {
  if (device() == nullptr) return;
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    streams_.push_back(stream);
  }
}

void KvCapture::Wrote(uint32_t layer, uint32_t first, uint32_t tokens) {
  if (tokens == 0) return;
  std::vector<Run>& runs = written_.at(layer);
  Run added = {first, first + tokens};
  // Those that touch it become part of it.
  const auto begin = std::find_if(runs.begin(), runs.end(),
                                  [&](const Run& run) { return run.second >= added.first; });
  auto end = begin;
  for (; end != runs.end() && end->first <= added.second; ++end) {
    added = {std::min(added.first, end->first), std::max(added.second, end->second)};
  }
  runs.insert(runs.erase(begin, end), added);
}

Status KvCapture::CheckWhole() const {
  const auto tokens = static_cast<uint32_t>(info_.tokens.size());
  for (size_t layer = 0; layer < written_.size(); ++layer) {
    const std::vector<Run>& runs = written_[layer];
    if (runs.size() == 1 && runs.front() == Run{0, tokens}) continue;
    const uint32_t missing = !runs.empty() && runs.front().first == 0 ? runs.front().second : 0;
    return Fail(Code::kInvalid, "token {} of {} in layer {} of record {} was not captured", missing,
                tokens, layer, info_.key.Hex());
  }
  return {};
}

Status KvCapture::Commit(std::unique_ptr<KvCapture> capture, DeviceStream stream) {
  INFERSCALE_TRY(capture->CheckWhole());
  capture->WroteOn(stream);
  capture->committed_ = true;
  return capture->queue_->Enqueue(*capture, true);
}

Result<std::shared_ptr<CaptureQueue>> CaptureQueue::Create(std::shared_ptr<Device> device,
                                                           std::shared_ptr<KvStore> store,
                                                           uint64_t bytes) {
  bytes = bytes / kAlignment * kAlignment;
  std::shared_ptr<CaptureQueue> queue(new CaptureQueue(std::move(device), std::move(store), bytes));
  if (queue->device_ != nullptr) {
    INFERSCALE_TRY(queue->device_->Bind());
    INFERSCALE_ASSIGN(queue->slab_, queue->device_->Alloc(bytes));
    INFERSCALE_ASSIGN(queue->staging_, queue->device_->AllocPinned(bytes));
    INFERSCALE_ASSIGN(queue->stream_, queue->device_->CreateStream());
    queue->data_ = queue->slab_.data();
  } else if (bytes > 0) {
    queue->host_slab_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)));
    if (queue->host_slab_ == nullptr) {
      return Fail(Code::kExhausted, "no {} bytes of memory for captures", bytes);
    }
    queue->data_ = queue->host_slab_.get();
  }
  queue->thread_ = std::thread([raw = queue.get()] { raw->Run(); });
  return queue;
}

CaptureQueue::~CaptureQueue() {
  Stop();
  if (stream_ != nullptr) (void)device_->DestroyStream(stream_);
}

Result<std::unique_ptr<KvCapture>> CaptureQueue::Begin(KvRecordInfo info) {
  const uint64_t bytes = info.tokens.size() * info.shape.TokenBytes();
  INFERSCALE_TRY(CheckRecord(info, bytes));
  if (IsQuantised(info.shape.dtype) || info.key.IsZero() || info.fingerprint.IsZero()) {
    return Fail(Code::kInvalid, "record {} of {} under fingerprint {} can't be captured",
                info.key.Hex(), DtypeName(info.shape.dtype), info.fingerprint.Hex());
  }
  uint64_t offset = 0;
  {
    MutexLock lock(mutex_);
    if (stopping_) return Fail(Code::kCancelled, "the tier has ended");
    const auto room = allocator_.Allocate(Rounded(bytes));
    if (!room) {
      return Fail(Code::kExhausted, "{} bytes for captures, {} of them in use: no room for {}",
                  budget_, counts_.bytes, bytes);
    }
    offset = *room;
    counts_.bytes += Rounded(bytes);
  }
  return std::make_unique<KvCapture>(shared_from_this(), std::move(info), offset, data_ + offset);
}

// Takes the capture's room, and what it holds if it is to be kept.
Status CaptureQueue::Enqueue(KvCapture& capture, bool keep) {
  Item item{.info = std::move(capture.info_), .offset = capture.offset_, .keep = keep};
  item.bytes = item.info.tokens.size() * item.info.shape.TokenBytes();
  for (const DeviceStream stream : capture.streams_) {
    auto event = device_->CreateEvent();
    if (event && device_->Record(*event, stream)) {
      item.events.push_back(std::move(*event));
    } else if (Status passed = device_->Synchronize(stream); !passed) {
      // Nobody knows when the stream will have passed: the room is not used again.
      MutexLock lock(mutex_);
      if (keep) ++counts_.failed;
      return passed;
    }
  }
  MutexLock lock(mutex_);
  if (stopping_) {
    // The room goes with the queue.
    for (const DeviceStream stream : capture.streams_) (void)device_->Synchronize(stream);
    return Fail(Code::kCancelled, "the tier has ended");
  }
  if (keep) ++counts_.waiting;
  queue_.push_back(std::move(item));
  changed_.NotifyAll();
  return {};
}

void CaptureQueue::Run() {
  if (device_ != nullptr) (void)device_->Bind();
  while (true) {
    std::vector<Item> batch = NextBatch();
    if (batch.empty()) return;
    if (device_ != nullptr) {
      Fetch(batch);
      Free(batch);
    } else {
      for (Item& item : batch) item.payload = data_ + item.offset;
    }
    Store(batch);
    // What was erased must not stay where nobody looks.
    uint64_t staged = 0;
    for (const Item& item : batch) {
      if (device_ == nullptr) std::memset(data_ + item.offset, 0, item.bytes);
      staged += Rounded(item.bytes);
    }
    if (device_ == nullptr) {
      Free(batch);
    } else {
      std::memset(staging_.data(), 0, staged);
    }
  }
}

std::vector<CaptureQueue::Item> CaptureQueue::NextBatch() {
  {
    MutexLock lock(mutex_);
    busy_ = false;
    changed_.NotifyAll();
  }
  while (true) {
    (void)store_->SealWhereAsked();  // who asked will say that it was in vain
    MutexLock lock(mutex_);
    if (queue_.empty() && !stopping_) (void)changed_.WaitFor(mutex_, KvStore::kSealPoll);
    if (queue_.empty() && !stopping_) continue;
    busy_ = !queue_.empty();
    return std::exchange(queue_, {});
  }
}

// Copies what is to be kept to the host, and wipes its place on the device.
void CaptureQueue::Fetch(std::vector<Item>& batch) {
  std::byte* to = staging_.data();
  for (Item& item : batch) {
    Status status;
    for (const DeviceEvent& event : item.events) {
      if (status) status = device_->Wait(stream_, event);
    }
    item.lost = !status;
    std::byte* from = data_ + item.offset;
    if (status && item.keep) {
      status = device_->Copy(to, from, item.bytes, cuda::kDeviceToHost, stream_);
    }
    if (status) (void)device_->Fill(from, 0, item.bytes, stream_);
    if (item.keep && status) {
      item.payload = to;
      to += Rounded(item.bytes);
    } else if (item.keep) {
      Count(1, status);
    }
  }
  if (const Status done = device_->Synchronize(stream_); !done) {
    for (Item& item : batch) {
      if (item.payload != nullptr) Count(1, done);
      item.payload = nullptr;
      item.lost = true;
    }
  }
}

// One sync for all of them; if they can't be stored together, each by itself.
void CaptureQueue::Store(const std::vector<Item>& batch) {
  std::vector<KvPut> puts;
  for (const Item& item : batch) {
    if (item.keep && item.payload != nullptr) {
      puts.push_back({item.info, {item.payload, item.bytes}});
    }
  }
  if (puts.empty()) return;
  const auto put = [&](std::span<const KvPut> records) -> Status {
    try {
      return store_->Put(records);
    } catch (const std::exception& error) {  // out of memory
      return Fail(Code::kExhausted, "storing {} records: {}", records.size(), error.what());
    }
  };
  const Status together = put(puts);
  if (together || puts.size() == 1) return Count(puts.size(), together);
  for (const KvPut& one : puts) Count(1, put({&one, 1}));
}

// Commits that ended so.
void CaptureQueue::Count(size_t records, const Status& status) {
  MutexLock lock(mutex_);
  counts_.waiting -= std::min<uint64_t>(counts_.waiting, records);
  (status ? counts_.stored : counts_.failed) += records;
  if (!status && !failure_) failure_ = status.error();
}

void CaptureQueue::Free(const std::vector<Item>& batch) {
  MutexLock lock(mutex_);
  for (const Item& item : batch) {
    if (item.lost) continue;
    allocator_.Free(item.offset, Rounded(item.bytes));
    counts_.bytes -= Rounded(item.bytes);
  }
}

Status CaptureQueue::Flush() {
  MutexLock lock(mutex_);
  while (busy_ || !queue_.empty()) changed_.Wait(mutex_);
  if (!failure_) return {};
  Error error = std::move(*failure_);
  failure_.reset();
  return tl::unexpected(std::move(error));
}

void CaptureQueue::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

CaptureStats CaptureQueue::stats() {
  MutexLock lock(mutex_);
  return counts_;
}

}  // namespace inferscale
