// What the catalog and the records' headers say, remembered for as long as the catalog says that
// nothing has changed. So records that are in use cost one look at its version, whoever else
// writes.
#ifndef INFERSCALE_STORE_LOOKUP_H_
#define INFERSCALE_STORE_LOOKUP_H_

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "store/catalog.h"
#include "store/env.h"
#include "store/kv_store.h"

namespace inferscale {

// Thread-safe.
class Lookup {
 public:
  // Rows and token ids that are remembered; above that it begins anew.
  static constexpr size_t kMaxRows = size_t{1} << 16;
  static constexpr size_t kMaxTokens = size_t{1} << 22;

  Lookup(Catalog& catalog, Env& env, std::string dir)
      : catalog_(catalog), env_(env), dir_(std::move(dir)) {}

  using Row = std::shared_ptr<const CatalogRow>;
  // The rows of `keys`, null where there is none, as they were at some moment since the call began.
  Result<std::vector<Row>> Rows(std::span<const Hash128> keys);

  // What the record of a row says about itself. Errors of ReadRecordInfo.
  Result<std::shared_ptr<const KvRecordInfo>> Info(const Row& row);

 private:
  struct Known {
    Row row;  // it is of a record in just this place
    std::shared_ptr<const KvRecordInfo> info;
  };

  Catalog& catalog_;
  Env& env_;
  const std::string dir_;
  Mutex mutex_;
  uint64_t version_ GUARDED_BY(mutex_) = 0;  // of rows_
  std::unordered_map<Hash128, Row> rows_ GUARDED_BY(mutex_);
  std::unordered_map<Hash128, Known> infos_ GUARDED_BY(mutex_);
  size_t info_tokens_ GUARDED_BY(mutex_) = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_LOOKUP_H_
