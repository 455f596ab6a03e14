#include "store/lookup.h"

#include "store/record_reader.h"

namespace inferscale {

Result<std::vector<Lookup::Row>> Lookup::Rows(std::span<const Hash128> keys) {
  MutexLock lock(mutex_);
  // Before the rows are read: they are at least as new as the version that they are filed under.
  INFERSCALE_ASSIGN(const uint64_t version, catalog_.Version());
  if (version != version_ || rows_.size() >= kMaxRows) rows_.clear();
  version_ = version;

  std::vector<Row> out(keys.size());
  std::vector<Hash128> unknown;
  std::vector<size_t> places;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (const auto found = rows_.find(keys[i]); found != rows_.end()) {
      out[i] = found->second;
    } else {
      unknown.push_back(keys[i]);
      places.push_back(i);
    }
  }
  INFERSCALE_ASSIGN(auto rows, catalog_.Find(unknown));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i]) continue;
    out[places[i]] = std::make_shared<const CatalogRow>(std::move(*rows[i]));
    rows_[unknown[i]] = out[places[i]];
  }
  return out;
}

Result<std::shared_ptr<const KvRecordInfo>> Lookup::Info(const Row& row) {
  {
    MutexLock lock(mutex_);
    const auto found = infos_.find(row->key);
    if (found != infos_.end() && (found->second.row == row || *found->second.row == *row)) {
      return found->second.info;
    }
  }
  INFERSCALE_ASSIGN(KvRecordInfo read, ReadRecordInfo(env_, dir_, *row));
  auto info = std::make_shared<const KvRecordInfo>(std::move(read));
  MutexLock lock(mutex_);
  if (info_tokens_ + info->tokens.size() > kMaxTokens) {
    infos_.clear();
    info_tokens_ = 0;
  }
  Known& known = infos_[row->key];
  if (known.info != nullptr) info_tokens_ -= known.info->tokens.size();
  known = {row, info};
  info_tokens_ += info->tokens.size();
  return info;
}

}  // namespace inferscale
