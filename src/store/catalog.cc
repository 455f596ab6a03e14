#include "store/catalog.h"

namespace inferscale {
namespace {

constexpr int64_t kCatalogVersion = 1;
// A catalog is small next to its records: no more page cache than SQLite takes by itself.
constexpr SqlOptions kOptions{.cache_kib = 2000};

// Triggers keep the sums per tenant, so that every process and every way to lose a row counts
// alike.
constexpr const char* kSchema = R"sql(
  CREATE TABLE segment(id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE);
  CREATE TABLE tenant(name TEXT PRIMARY KEY, records INTEGER NOT NULL, bytes INTEGER NOT NULL)
    WITHOUT ROWID;
  CREATE TABLE record(
    key BLOB PRIMARY KEY,
    tenant TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    segment INTEGER NOT NULL REFERENCES segment(id),
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    payload_bytes INTEGER NOT NULL,
    tokens INTEGER NOT NULL) WITHOUT ROWID;
  CREATE INDEX record_segment ON record(segment, offset);
  CREATE TRIGGER record_added AFTER INSERT ON record BEGIN
    INSERT INTO tenant VALUES(new.tenant, 1, new.length)
      ON CONFLICT(name) DO UPDATE SET records = records + 1, bytes = bytes + new.length;
  END;
  CREATE TRIGGER record_removed AFTER DELETE ON record BEGIN
    UPDATE tenant SET records = records - 1, bytes = bytes - old.length WHERE name = old.tenant;
    DELETE FROM tenant WHERE name = old.tenant AND records = 0;
  END;
  PRAGMA user_version = 1;
)sql";

constexpr const char* kColumns =
    "SELECT r.key, r.tenant, r.fingerprint, s.path, r.offset, r.length, r.checksum, "
    "r.payload_bytes, r.tokens FROM record r JOIN segment s ON s.id = r.segment ";
const std::string kFindSql = std::string(kColumns) + "WHERE r.key = ?";
// ?1 is all keys in one blob, ?2 how many; the last column says which of them a row is for.
const std::string kFindManySql =
    "WITH RECURSIVE asked(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM asked WHERE n + 1 < ?2) "
    "SELECT r.key, r.tenant, r.fingerprint, s.path, r.offset, r.length, r.checksum, "
    "r.payload_bytes, r.tokens, asked.n FROM asked "
    "CROSS JOIN record r ON r.key = substr(?1, 16 * asked.n + 1, 16) "
    "CROSS JOIN segment s ON s.id = r.segment";
const std::string kInSegmentSql = std::string(kColumns) + "WHERE s.path = ? ORDER BY r.offset";

uint64_t Number(const SqlQuery& query, int column) {
  return static_cast<uint64_t>(query.Int(column));
}

CatalogRow ReadRow(const SqlQuery& query) {
  CatalogRow row;
  row.key = query.Hash(0);
  row.tenant = query.Text(1);
  row.fingerprint = query.Hash(2);
  row.place.segment = query.Text(3);
  row.place.offset = Number(query, 4);
  row.place.length = Number(query, 5);
  row.place.checksum = static_cast<uint32_t>(Number(query, 6));
  row.payload_bytes = Number(query, 7);
  row.tokens = Number(query, 8);
  return row;
}

// SQLite's verdict: "ok", or what is wrong.
Result<std::string> CheckIntegrity(SqlDatabase& db) {
  // Not quick_check: an index that disagrees with its table would hide rows.
  SqlQuery query = db.Query("PRAGMA integrity_check(1)");
  INFERSCALE_TRY(query.Next());
  return std::string(query.Text(0));
}

// kCorrupt if the rows are damaged. The check takes a page that can't be read just now for damage:
// so everything is read in another way, which tells the two apart, and then checked once more.
Status CheckRows(SqlDatabase& db) {
  INFERSCALE_ASSIGN(std::string verdict, CheckIntegrity(db));
  if (verdict == "ok") return {};
  for (const char* sql :
       {"SELECT count(DISTINCT tokens) FROM record",
        "SELECT count(*) FROM record INDEXED BY record_segment WHERE segment >= 0",
        "SELECT count(DISTINCT path || id) FROM segment", "SELECT sum(bytes) FROM tenant"}) {
    INFERSCALE_TRY(db.QueryInt(sql));
  }
  INFERSCALE_ASSIGN(verdict, CheckIntegrity(db));
  if (verdict == "ok") return {};
  return Fail(Code::kCorrupt, "the catalog is damaged: {}", verdict);
}

// The text of all tables, indexes and triggers.
Result<std::string> ReadSchema(SqlDatabase& db) {
  SqlQuery query = db.Query(
      "SELECT name || ' ' || coalesce(sql, '') FROM sqlite_schema "
      "WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name");
  std::string text;
  while (true) {
    INFERSCALE_ASSIGN(const bool row, query.Next());
    if (!row) return text;
    text.append(query.Text(0)).append(";\n");
  }
}

// SQLite believes what the file says about its own tables; a flipped bit there is found here.
Status CheckSchema(SqlDatabase& db) {
  INFERSCALE_ASSIGN(const auto model, SqlDatabase::Open(":memory:", kOptions));
  INFERSCALE_TRY(model->Exec(kSchema));
  INFERSCALE_ASSIGN(const std::string expected, ReadSchema(*model));
  INFERSCALE_ASSIGN(const std::string found, ReadSchema(db));
  if (found != expected) return Fail(Code::kCorrupt, "the catalog's tables are damaged");
  return {};
}

Status MakeSchema(SqlDatabase& db) {
  INFERSCALE_ASSIGN(auto transaction, SqlTransaction::Begin(db));
  INFERSCALE_ASSIGN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  INFERSCALE_ASSIGN(const std::string schema, ReadSchema(db));
  if (version == 0 && schema.empty()) {
    INFERSCALE_TRY(db.Exec(kSchema));
    return transaction.Commit();
  }
  if (version < 0 || version > kCatalogVersion)
    return Fail(Code::kUnsupported, "catalog of version {}", version);
  return CheckSchema(db);
}

// What was opened, once its tables are there and sound.
Result<std::unique_ptr<SqlDatabase>> Prepare(Result<std::unique_ptr<SqlDatabase>> opened,
                                             bool check_rows) {
  INFERSCALE_ASSIGN(auto db, std::move(opened));
  INFERSCALE_TRY(MakeSchema(*db));
  if (check_rows) INFERSCALE_TRY(CheckRows(*db));
  return db;
}

// The statements are right and respect every constraint, so an error in them is one of the file.
bool IsDamage(Code code) {
  return code == Code::kCorrupt || code == Code::kInternal || code == Code::kConflict;
}

Status AddSegment(SqlDatabase& db, const std::string& segment) {
  return db.Query("INSERT INTO segment(path) VALUES(?) ON CONFLICT(path) DO NOTHING", segment)
      .Run();
}

// A segment without records is forgotten; its file is then nobody's and goes at compaction.
Status ForgetEmptySegments(SqlDatabase& db) {
  return db
      .Query(
          "DELETE FROM segment WHERE NOT EXISTS "
          "(SELECT 1 FROM record WHERE record.segment = segment.id)")
      .Run();
}

}  // namespace

Result<std::unique_ptr<Catalog>> Catalog::Open(const std::string& path) {
  std::unique_ptr<Catalog> catalog(new Catalog(path));
  INFERSCALE_TRY(catalog->Reopen(Look::kTables));
  return catalog;
}

Result<bool> Catalog::Reopen(Look look) {
  MutexLock write_lock(write_mutex_);
  MutexLock read_lock(read_mutex_);
  const bool check_rows = look == Look::kEverything;
  auto opened = Prepare(SqlDatabase::Open(path_, kOptions), check_rows);
  const bool damaged = !opened && IsDamage(opened.error().code);
  if (damaged) opened = Prepare(SqlDatabase::Reset(path_, kOptions), check_rows);
  INFERSCALE_ASSIGN(auto writer, std::move(opened));
  INFERSCALE_ASSIGN(auto reader, SqlDatabase::Open(path_, kOptions));
  writer_ = std::move(writer);
  reader_ = std::move(reader);
  ++openings_;
  if (damaged) was_damaged_ = true;
  return !damaged;
}

Result<bool> Catalog::Verify() { return Reopen(Look::kEverything); }

template <typename Body>
std::invoke_result_t<Body, SqlDatabase&> Catalog::Read(const Body& body) {
  {
    MutexLock lock(read_mutex_);
    auto result = body(*reader_);
    if (result || !IsDamage(result.error().code)) return result;
  }
  INFERSCALE_TRY(Verify());
  MutexLock lock(read_mutex_);
  return body(*reader_);
}

template <typename Body>
std::invoke_result_t<Body, SqlDatabase&> Catalog::Write(const Body& body) {
  const auto in_transaction = [&](SqlDatabase& db) -> std::invoke_result_t<Body, SqlDatabase&> {
    INFERSCALE_ASSIGN(auto transaction, SqlTransaction::Begin(db));
    auto result = body(db);
    if (result) INFERSCALE_TRY(transaction.Commit());
    return result;
  };
  {
    MutexLock lock(write_mutex_);
    auto result = in_transaction(*writer_);
    if (result || !IsDamage(result.error().code)) return result;
  }
  INFERSCALE_TRY(Verify());
  MutexLock lock(write_mutex_);
  return in_transaction(*writer_);
}

Result<std::optional<CatalogRow>> Catalog::Find(const Hash128& key) {
  return Read([&](SqlDatabase& db) -> Result<std::optional<CatalogRow>> {
    SqlQuery query = db.Query(kFindSql, key);
    INFERSCALE_ASSIGN(const bool found, query.Next());
    if (!found) return std::nullopt;
    return ReadRow(query);
  });
}

Result<std::vector<std::optional<CatalogRow>>> Catalog::Find(std::span<const Hash128> keys) {
  static_assert(sizeof(Hash128) == 16);  // and its bytes are what a key is in the table
  if (keys.empty()) return std::vector<std::optional<CatalogRow>>{};
  return Read([&](SqlDatabase& db) -> Result<std::vector<std::optional<CatalogRow>>> {
    std::vector<std::optional<CatalogRow>> rows(keys.size());
    SqlQuery query = db.Query(kFindManySql, std::as_bytes(keys), keys.size());
    while (true) {
      INFERSCALE_ASSIGN(const bool found, query.Next());
      if (!found) return rows;
      rows.at(Number(query, 9)) = ReadRow(query);
    }
  });
}

Result<uint64_t> Catalog::Version() {
  // Of the reader, to whom this process's writer is another one too.
  return Read([&](SqlDatabase& db) -> Result<uint64_t> {
    INFERSCALE_ASSIGN(const int64_t version, db.QueryInt("PRAGMA data_version"));
    return openings_ << 32 | static_cast<uint32_t>(version);
  });
}

Result<std::vector<Hash128>> Catalog::Keys() {
  return Read([](SqlDatabase& db) -> Result<std::vector<Hash128>> {
    SqlQuery query = db.Query("SELECT key FROM record");
    std::vector<Hash128> keys;
    while (true) {
      INFERSCALE_ASSIGN(const bool row, query.Next());
      if (!row) return keys;
      keys.push_back(query.Hash(0));
    }
  });
}

Result<uint64_t> Catalog::Bytes(std::span<const Hash128> keys) {
  return Read([&](SqlDatabase& db) -> Result<uint64_t> {
    uint64_t bytes = 0;
    for (const Hash128& key : keys) {
      INFERSCALE_ASSIGN(const int64_t length,
                        db.QueryInt("SELECT length FROM record WHERE key = ?", key));
      bytes += static_cast<uint64_t>(length);
    }
    return bytes;
  });
}

Result<uint64_t> Catalog::TenantBytes(std::string_view tenant) {
  return Read([&](SqlDatabase& db) -> Result<uint64_t> {
    INFERSCALE_ASSIGN(const int64_t bytes,
                      db.QueryInt("SELECT bytes FROM tenant WHERE name = ?", tenant));
    return static_cast<uint64_t>(bytes);
  });
}

Result<CatalogTotals> Catalog::Totals() {
  return Read([](SqlDatabase& db) -> Result<CatalogTotals> {
    SqlQuery query =
        db.Query("SELECT coalesce(sum(records), 0), coalesce(sum(bytes), 0) FROM tenant");
    INFERSCALE_TRY(query.Next());
    return CatalogTotals{Number(query, 0), Number(query, 1)};
  });
}

Result<std::vector<SegmentUse>> Catalog::Segments() {
  return Read([](SqlDatabase& db) -> Result<std::vector<SegmentUse>> {
    // Records do not overlap: the one that begins last ends last.
    SqlQuery query = db.Query(
        "SELECT s.path, r.offset + r.length FROM segment s JOIN record r ON r.key = "
        "(SELECT key FROM record WHERE segment = s.id ORDER BY offset DESC LIMIT 1)");
    std::vector<SegmentUse> out;
    while (true) {
      INFERSCALE_ASSIGN(const bool row, query.Next());
      if (!row) return out;
      out.push_back({std::string(query.Text(0)), Number(query, 1)});
    }
  });
}

Result<std::vector<CatalogRow>> Catalog::RecordsIn(std::string_view segment) {
  return Read([&](SqlDatabase& db) -> Result<std::vector<CatalogRow>> {
    SqlQuery query = db.Query(kInSegmentSql, segment);
    std::vector<CatalogRow> out;
    while (true) {
      INFERSCALE_ASSIGN(const bool row, query.Next());
      if (!row) return out;
      out.push_back(ReadRow(query));
    }
  });
}

Status Catalog::Insert(std::span<const CatalogRow> rows) {
  return Write([&](SqlDatabase& db) -> Status {
    for (const CatalogRow& row : rows) {
      INFERSCALE_TRY(AddSegment(db, row.place.segment));
      INFERSCALE_TRY(db.Query("INSERT INTO record VALUES(?, ?, ?, "
                              "(SELECT id FROM segment WHERE path = ?), ?, ?, ?, ?, ?) "
                              "ON CONFLICT(key) DO NOTHING",
                              row.key, row.tenant, row.fingerprint, row.place.segment,
                              row.place.offset, row.place.length, row.place.checksum,
                              row.payload_bytes, row.tokens)
                         .Run());
    }
    return {};
  });
}

Status Catalog::Erase(std::span<const Hash128> keys) {
  return Write([&](SqlDatabase& db) -> Status {
    for (const Hash128& key : keys) {
      INFERSCALE_TRY(db.Query("DELETE FROM record WHERE key = ?", key).Run());
    }
    return {};
  });
}

Result<uint64_t> Catalog::Drop(std::span<const CatalogRow> rows) {
  return Write([&](SqlDatabase& db) -> Result<uint64_t> {
    uint64_t dropped = 0;
    for (const CatalogRow& row : rows) {
      INFERSCALE_TRY(db.Query("DELETE FROM record WHERE key = ? AND offset = ? AND "
                              "segment = (SELECT id FROM segment WHERE path = ?)",
                              row.key, row.place.offset, row.place.segment)
                         .Run());
      dropped += static_cast<uint64_t>(db.Changes());
    }
    INFERSCALE_TRY(ForgetEmptySegments(db));
    return dropped;
  });
}

Status Catalog::Move(std::span<const CatalogRow> rows, std::span<const RecordPlace> places) {
  return Write([&](SqlDatabase& db) -> Status {
    for (size_t i = 0; i < rows.size(); ++i) {
      INFERSCALE_TRY(AddSegment(db, places[i].segment));
      const RecordPlace& old = rows[i].place;
      const RecordPlace& place = places[i];
      INFERSCALE_TRY(
          db.Query("UPDATE record SET segment = (SELECT id FROM segment WHERE path = ?), "
                   "offset = ?, length = ?, checksum = ? WHERE key = ? AND offset = ? AND "
                   "segment = (SELECT id FROM segment WHERE path = ?)",
                   place.segment, place.offset, place.length, place.checksum, rows[i].key,
                   old.offset, old.segment)
              .Run());
    }
    return ForgetEmptySegments(db);
  });
}

Status Catalog::Scrub() {
  MutexLock lock(write_mutex_);
  INFERSCALE_TRY(writer_->Exec("VACUUM"));
  INFERSCALE_ASSIGN(const int64_t busy, writer_->QueryInt("PRAGMA wal_checkpoint(TRUNCATE)"));
  if (busy != 0) return Fail(Code::kTransient, "the catalog is being read; compact again later");
  return {};
}

}  // namespace inferscale
