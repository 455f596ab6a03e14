// What was asked lately, and what memory did for each answer: ids and numbers, never text.
#ifndef INFERSCALE_SERVER_REQUEST_LOG_H_
#define INFERSCALE_SERVER_REQUEST_LOG_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "app/app.h"
#include "base/mutex.h"

namespace inferscale {

struct AnswerRecord {
  MemoryMode mode = MemoryMode::kKv;
  double first_token_ms = 0;  // 0: nobody waited for it
  GenerateStats stats;
  std::vector<std::string> injected;   // ids of facts whose KV was written into the context
  std::vector<std::string> prefilled;  // and of those that were computed
};
AnswerRecord MakeAnswerRecord(const Answer& answer);

struct RequestRecord {
  uint64_t number = 0;  // given by the log; rising
  std::string id;       // X-Request-ID
  int64_t at_ms = 0;    // when it came, Unix ms
  std::string method;   // of the route, and its path: both empty if there is no such route
  std::string route;
  std::string tenant;   // empty if nobody was let in
  std::string key_id;   // empty without a key
  unsigned status = 0;  // 0: the client left
  double ms = 0;        // to the end of the answer
  std::optional<AnswerRecord> answer;
};

// The last requests, in memory. Thread-safe.
class RequestLog {
 public:
  // At most so many requests, and with them at most so many ids of facts, but for the newest, which
  // stays whatever it has.
  explicit RequestLog(size_t requests = 1000, size_t ids = 100'000);

  void Add(RequestRecord record) EXCLUDES(mutex_);
  // Those after this number, the newest first; of one tenant, or of all and of nobody.
  std::vector<RequestRecord> Last(size_t limit, uint64_t after,
                                  const std::optional<std::string>& tenant) const EXCLUDES(mutex_);
  uint64_t newest() const EXCLUDES(mutex_);  // its number; 0 if there was none

 private:
  const size_t max_requests_;
  const size_t max_ids_;
  mutable Mutex mutex_;
  std::deque<RequestRecord> records_ GUARDED_BY(mutex_);  // oldest first
  size_t ids_ GUARDED_BY(mutex_) = 0;
  uint64_t number_ GUARDED_BY(mutex_) = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_REQUEST_LOG_H_
