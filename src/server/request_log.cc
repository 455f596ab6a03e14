#include "server/request_log.h"

#include <algorithm>
#include <utility>

namespace inferscale {
namespace {

size_t IdsOf(const RequestRecord& record) {
  return record.answer ? record.answer->injected.size() + record.answer->prefilled.size() : 0;
}

}  // namespace

AnswerRecord MakeAnswerRecord(const Answer& answer) {
  AnswerRecord record{answer.mode, answer.times.first_token_ms, answer.stats, {}, {}};
  for (const UsedFact& used : answer.facts) {
    (used.injected ? record.injected : record.prefilled).push_back(used.fact.id);
  }
  return record;
}

RequestLog::RequestLog(size_t requests, size_t ids)
    : max_requests_(std::max<size_t>(requests, 1)), max_ids_(ids) {}

void RequestLog::Add(RequestRecord record) {
  MutexLock lock(mutex_);
  record.number = ++number_;
  ids_ += IdsOf(record);
  records_.push_back(std::move(record));
  while (records_.size() > max_requests_ || (ids_ > max_ids_ && records_.size() > 1)) {
    ids_ -= IdsOf(records_.front());
    records_.pop_front();
  }
}

std::vector<RequestRecord> RequestLog::Last(size_t limit, uint64_t after,
                                            const std::optional<std::string>& tenant) const {
  std::vector<RequestRecord> last;
  MutexLock lock(mutex_);
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) {
    if (last.size() == limit || record->number <= after) break;
    if (!tenant || record->tenant == *tenant) last.push_back(*record);
  }
  return last;
}

uint64_t RequestLog::newest() const {
  MutexLock lock(mutex_);
  return number_;
}

}  // namespace inferscale
