// Which records exist and where: a SQLite database (WAL, synchronous=FULL) that several processes
// share. A row is the truth about a record: bytes in a segment file that no row names are dead.
#ifndef INFERSCALE_STORE_CATALOG_H_
#define INFERSCALE_STORE_CATALOG_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
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
  uint64_t end = 0;  // the file has at least this many bytes
};

struct CatalogTotals {
  uint64_t records = 0;
  uint64_t bytes = 0;  // of whole records
};

// Thread-safe. Readers do not wait for a writer's sync. Every change is durable on return, and all
// or nothing. Errors: kTransient (the system refuses, another process holds it too long), kCorrupt.
//
// A damaged file becomes an empty catalog, and was_damaged() tells. Never rebuilt from segments:
// they also hold what was erased. A kill or a power cut damages nothing, so Open looks only at
// what the tables are, in a time that does not grow with them; the rest is found when a call meets
// it, which is then done again, or by Verify.
class Catalog {
 public:
  // kUnsupported if a newer version of this program made it.
  static Result<std::unique_ptr<Catalog>> Open(const std::string& path);

  bool was_damaged() const { return was_damaged_; }
  // Reads all of it and compares the index with the rows. False if it was damaged and is empty now.
  Result<bool> Verify();

  // Another number whenever anything may have changed since, by whichever process.
  Result<uint64_t> Version();

  Result<std::optional<CatalogRow>> Find(const Hash128& key);
  // The same for many at once, in their order.
  Result<std::vector<std::optional<CatalogRow>>> Find(std::span<const Hash128> keys);
  Result<std::vector<Hash128>> Keys();
  // Of these records together, in the catalog.
  Result<uint64_t> Bytes(std::span<const Hash128> keys);
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
  explicit Catalog(std::string path) : path_(std::move(path)) {}

  enum class Look : uint8_t { kTables, kEverything };
  // Opens both connections anew, after making a damaged file an empty one. False if it was.
  Result<bool> Reopen(Look look) EXCLUDES(write_mutex_, read_mutex_);
  // `body` on one of the connections; once more if it met damage.
  template <typename Body>
  std::invoke_result_t<Body, SqlDatabase&> Read(const Body& body) EXCLUDES(read_mutex_);
  template <typename Body>
  std::invoke_result_t<Body, SqlDatabase&> Write(const Body& body) EXCLUDES(write_mutex_);

  const std::string path_;
  std::atomic<bool> was_damaged_ = false;
  std::atomic<uint64_t> openings_ = 0;  // of reader_; SQLite's version begins anew with each
  Mutex write_mutex_;                   // taken before read_mutex_ where both are needed
  Mutex read_mutex_;
  std::unique_ptr<SqlDatabase> writer_ GUARDED_BY(write_mutex_);
  std::unique_ptr<SqlDatabase> reader_ GUARDED_BY(read_mutex_);
};

}  // namespace inferscale

#endif  // INFERSCALE_STORE_CATALOG_H_
