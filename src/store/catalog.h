// Which records exist and where: a SQLite database (WAL, synchronous=FULL) that several processes
// share. A row is the truth about a record: bytes in a segment file that no row names are dead.
#ifndef INFERSCALE_STORE_CATALOG_H_
#define INFERSCALE_STORE_CATALOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/sqlite.h"
#include "kv/fingerprint.h"

namespace inferscale {

// Where a record's bytes are. `segment` is a path below the store's directory.
struct RecordPlace {
  std::string segment;
  uint64_t offset = 0;
  uint64_t length = 0;    // the whole record, header and padding included
  uint32_t checksum = 0;  // header_crc of the record, which covers the payload's checksum

  bool operator==(const RecordPlace&) const = default;
};

struct CatalogRow {
  Hash128 key;
  std::string tenant;
  Fingerprint fingerprint;
  RecordPlace place;
  uint64_t payload_bytes = 0;
  uint64_t tokens = 0;  // how many

  bool operator==(const CatalogRow&) const = default;
};

// What the rows say about one segment.
struct SegmentUse {
  std::string segment;
  uint64_t live_bytes = 0;
  uint64_t end = 0;  // the file has at least this many bytes
};

struct CatalogTotals {
  uint64_t records = 0;
  uint64_t bytes = 0;  // of whole records
};

// Thread-safe. Readers do not wait for a writer's sync. Every change is durable on return, and all
// or nothing. Errors: kTransient (the system refuses, another process holds it too long), kCorrupt.
class Catalog {
 public:
  // A damaged file becomes an empty catalog, and was_damaged() tells. Never rebuilt from segments:
  // they also hold what was erased. kUnsupported if a newer version of this program made it.
  static Result<std::unique_ptr<Catalog>> Open(const std::string& path);

  bool was_damaged() const { return was_damaged_; }

  Result<std::optional<CatalogRow>> Find(const Hash128& key);
  Result<std::vector<Hash128>> Keys();
  Result<uint64_t> TenantBytes(std::string_view tenant);
  Result<CatalogTotals> Totals();
  Result<std::vector<SegmentUse>> Segments();
  // In the order of their offsets.
  Result<std::vector<CatalogRow>> RecordsIn(std::string_view segment);

  // A key that is there already keeps its row.
  Status Insert(std::span<const CatalogRow> rows);
  Status Erase(std::span<const Hash128> keys);
  // Removes those of `rows` that are still in the same place; says how many.
  Result<uint64_t> Drop(std::span<const CatalogRow> rows);
  // Points each of `rows` that is still in its place to the same entry of `places`.
  Status Move(std::span<const CatalogRow> rows, std::span<const RecordPlace> places);
  // So that nothing that was erased is left in the file or its log. kTransient while a reader of
  // another process is in the way.
  Status Scrub();

 private:
  Catalog(std::unique_ptr<SqlDatabase> reader, std::unique_ptr<SqlDatabase> writer,
          bool was_damaged)
      : reader_(std::move(reader)), writer_(std::move(writer)), was_damaged_(was_damaged) {}

  Mutex read_mutex_;
  const std::unique_ptr<SqlDatabase> reader_;  // used under read_mutex_
  Mutex write_mutex_;
  const std::unique_ptr<SqlDatabase> writer_;  // used under write_mutex_
  const bool was_damaged_;
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_CATALOG_H_
