#include "store/catalog.h"

namespace inferscale {
namespace {

constexpr uint64_t kCatalogVersion = 1;

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
// Statements are cached by address, so each text is made once.
const std::string kFindSql = std::string(kColumns) + "WHERE r.key = ?";
const std::string kInSegmentSql = std::string(kColumns) + "WHERE s.path = ? ORDER BY r.offset";

CatalogRow ReadRow(const SqliteQuery& query) {
  CatalogRow row;
  row.key = query.Hash(0);
  row.tenant = query.Text(1);
  row.fingerprint = query.Hash(2);
  row.place.segment = query.Text(3);
  row.place.offset = query.Int(4);
  row.place.length = query.Int(5);
  row.place.checksum = static_cast<uint32_t>(query.Int(6));
  row.payload_bytes = query.Int(7);
  row.tokens = query.Int(8);
  return row;
}

Result<uint64_t> ReadNumber(Sqlite& db, const char* sql) {
  INFERSCALE_ASSIGN(const auto query, db.Query(sql));
  INFERSCALE_TRY(query->Step());
  return query->Int(0);
}

Status CheckSound(Sqlite& db) {
  // Not quick_check: an index that disagrees with its table would hide rows.
  INFERSCALE_ASSIGN(const auto query, db.Query("PRAGMA integrity_check(1)"));
  INFERSCALE_TRY(query->Step());
  if (const std::string verdict = query->Text(0); verdict != "ok") {
    return Fail(Code::kCorrupt, "the catalog is damaged: {}", verdict);
  }
  return {};
}

Status Configure(Sqlite& db) {
  return db.Exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON");
}

// The text of all tables, indexes and triggers.
Result<std::string> ReadSchema(Sqlite& db) {
  INFERSCALE_ASSIGN(const auto query,
                    db.Query("SELECT name || ' ' || coalesce(sql, '') FROM sqlite_schema "
                             "WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name"));
  std::string text;
  while (true) {
    INFERSCALE_ASSIGN(const bool row, query->Step());
    if (!row) return text;
    text += query->Text(0) + ";\n";
  }
}

// SQLite believes what the file says about its own tables; a flipped bit there is found here.
Status CheckSchema(Sqlite& db) {
  INFERSCALE_ASSIGN(const auto model, Sqlite::Open(":memory:"));
  INFERSCALE_TRY(model->Exec(kSchema));
  INFERSCALE_ASSIGN(const std::string expected, ReadSchema(*model));
  INFERSCALE_ASSIGN(const std::string found, ReadSchema(db));
  if (found != expected) return Fail(Code::kCorrupt, "the catalog's tables are damaged");
  return {};
}

Status MakeSchema(Sqlite& db) {
  INFERSCALE_ASSIGN(const auto transaction, SqliteTransaction::Begin(db));
  INFERSCALE_ASSIGN(const uint64_t version, ReadNumber(db, "PRAGMA user_version"));
  INFERSCALE_ASSIGN(const std::string schema, ReadSchema(db));
  if (version == 0 && schema.empty()) {
    INFERSCALE_TRY(db.Exec(kSchema));
    return transaction->Commit();
  }
  if (version > kCatalogVersion) return Fail(Code::kUnsupported, "catalog of version {}", version);
  return CheckSchema(db);
}

Status Prepare(Sqlite& db) {
  INFERSCALE_TRY(Configure(db));
  INFERSCALE_TRY(CheckSound(db));
  return MakeSchema(db);
}

Status AddSegment(Sqlite& db, const std::string& segment) {
  INFERSCALE_ASSIGN(const auto query,
                    db.Query("INSERT INTO segment(path) VALUES(?) ON CONFLICT(path) DO NOTHING"));
  return query->Bind(segment).Run();
}

// A segment without records is forgotten; its file is then nobody's and goes at compaction.
Status ForgetEmptySegments(Sqlite& db) {
  INFERSCALE_ASSIGN(const auto query,
                    db.Query("DELETE FROM segment WHERE NOT EXISTS "
                             "(SELECT 1 FROM record WHERE record.segment = segment.id)"));
  return query->Run();
}

}  // namespace

Result<std::unique_ptr<Catalog>> Catalog::Open(const std::string& path) {
  INFERSCALE_ASSIGN(auto writer, Sqlite::Open(path));
  Status ready = Prepare(*writer);
  // The statements are right, so an error in them is one of the file.
  const bool damaged =
      !ready && (ready.error().code == Code::kCorrupt || ready.error().code == Code::kInternal);
  if (damaged) {
    INFERSCALE_TRY(writer->Reset());
    ready = Prepare(*writer);
  }
  INFERSCALE_TRY(ready);
  INFERSCALE_ASSIGN(auto reader, Sqlite::Open(path));
  INFERSCALE_TRY(Configure(*reader));
  return std::unique_ptr<Catalog>(new Catalog(std::move(reader), std::move(writer), damaged));
}

Result<std::optional<CatalogRow>> Catalog::Find(const Hash128& key) {
  MutexLock lock(read_mutex_);
  INFERSCALE_ASSIGN(const auto query, reader_->Query(kFindSql.c_str()));
  INFERSCALE_ASSIGN(const bool found, query->Bind(key).Step());
  if (!found) return std::nullopt;
  return ReadRow(*query);
}

Result<std::vector<Hash128>> Catalog::Keys() {
  MutexLock lock(read_mutex_);
  INFERSCALE_ASSIGN(const auto query, reader_->Query("SELECT key FROM record"));
  std::vector<Hash128> keys;
  while (true) {
    INFERSCALE_ASSIGN(const bool row, query->Step());
    if (!row) return keys;
    keys.push_back(query->Hash(0));
  }
}

Result<uint64_t> Catalog::TenantBytes(std::string_view tenant) {
  MutexLock lock(read_mutex_);
  INFERSCALE_ASSIGN(const auto query, reader_->Query("SELECT bytes FROM tenant WHERE name = ?"));
  INFERSCALE_ASSIGN(const bool found, query->Bind(tenant).Step());
  return found ? query->Int(0) : 0;
}

Result<CatalogTotals> Catalog::Totals() {
  MutexLock lock(read_mutex_);
  INFERSCALE_ASSIGN(const auto query,
                    reader_->Query("SELECT coalesce(sum(records), 0), coalesce(sum(bytes), 0) "
                                   "FROM tenant"));
  INFERSCALE_TRY(query->Step());
  return CatalogTotals{query->Int(0), query->Int(1)};
}

Result<std::vector<SegmentUse>> Catalog::Segments() {
  MutexLock lock(read_mutex_);
  INFERSCALE_ASSIGN(
      const auto query,
      reader_->Query("SELECT s.path, sum(r.length), max(r.offset + r.length) "
                     "FROM segment s JOIN record r ON r.segment = s.id GROUP BY s.id"));
  std::vector<SegmentUse> out;
  while (true) {
    INFERSCALE_ASSIGN(const bool row, query->Step());
    if (!row) return out;
    out.push_back({query->Text(0), query->Int(1), query->Int(2)});
  }
}

Result<std::vector<CatalogRow>> Catalog::RecordsIn(std::string_view segment) {
  MutexLock lock(read_mutex_);
  INFERSCALE_ASSIGN(const auto query, reader_->Query(kInSegmentSql.c_str()));
  query->Bind(segment);
  std::vector<CatalogRow> out;
  while (true) {
    INFERSCALE_ASSIGN(const bool row, query->Step());
    if (!row) return out;
    out.push_back(ReadRow(*query));
  }
}

Status Catalog::Insert(std::span<const CatalogRow> rows) {
  MutexLock lock(write_mutex_);
  INFERSCALE_ASSIGN(const auto transaction, SqliteTransaction::Begin(*writer_));
  for (const CatalogRow& row : rows) {
    INFERSCALE_TRY(AddSegment(*writer_, row.place.segment));
    INFERSCALE_ASSIGN(const auto query,
                      writer_->Query("INSERT INTO record VALUES(?, ?, ?, "
                                     "(SELECT id FROM segment WHERE path = ?), ?, ?, ?, ?, ?) "
                                     "ON CONFLICT(key) DO NOTHING"));
    query->Bind(row.key).Bind(row.tenant).Bind(row.fingerprint).Bind(row.place.segment);
    query->Bind(row.place.offset).Bind(row.place.length).Bind(uint64_t{row.place.checksum});
    INFERSCALE_TRY(query->Bind(row.payload_bytes).Bind(row.tokens).Run());
  }
  return transaction->Commit();
}

Status Catalog::Erase(std::span<const Hash128> keys) {
  MutexLock lock(write_mutex_);
  INFERSCALE_ASSIGN(const auto transaction, SqliteTransaction::Begin(*writer_));
  for (const Hash128& key : keys) {
    INFERSCALE_ASSIGN(const auto query, writer_->Query("DELETE FROM record WHERE key = ?"));
    INFERSCALE_TRY(query->Bind(key).Run());
  }
  return transaction->Commit();
}

Result<uint64_t> Catalog::Drop(std::span<const CatalogRow> rows) {
  MutexLock lock(write_mutex_);
  INFERSCALE_ASSIGN(const auto transaction, SqliteTransaction::Begin(*writer_));
  uint64_t dropped = 0;
  for (const CatalogRow& row : rows) {
    INFERSCALE_ASSIGN(const auto query,
                      writer_->Query("DELETE FROM record WHERE key = ? AND offset = ? AND "
                                     "segment = (SELECT id FROM segment WHERE path = ?)"));
    query->Bind(row.key).Bind(row.place.offset);
    INFERSCALE_TRY(query->Bind(row.place.segment).Run());
    dropped += writer_->changes();
  }
  INFERSCALE_TRY(ForgetEmptySegments(*writer_));
  INFERSCALE_TRY(transaction->Commit());
  return dropped;
}

Status Catalog::Move(std::span<const CatalogRow> rows, std::span<const RecordPlace> places) {
  MutexLock lock(write_mutex_);
  INFERSCALE_ASSIGN(const auto transaction, SqliteTransaction::Begin(*writer_));
  for (size_t i = 0; i < rows.size(); ++i) {
    INFERSCALE_TRY(AddSegment(*writer_, places[i].segment));
    INFERSCALE_ASSIGN(
        const auto query,
        writer_->Query("UPDATE record SET segment = (SELECT id FROM segment WHERE path = ?), "
                       "offset = ?, length = ?, checksum = ? WHERE key = ? AND offset = ? AND "
                       "segment = (SELECT id FROM segment WHERE path = ?)"));
    query->Bind(places[i].segment).Bind(places[i].offset).Bind(places[i].length);
    query->Bind(uint64_t{places[i].checksum}).Bind(rows[i].key).Bind(rows[i].place.offset);
    INFERSCALE_TRY(query->Bind(rows[i].place.segment).Run());
  }
  INFERSCALE_TRY(ForgetEmptySegments(*writer_));
  return transaction->Commit();
}

Status Catalog::Scrub() {
  MutexLock lock(write_mutex_);
  INFERSCALE_TRY(writer_->Exec("VACUUM"));
  INFERSCALE_ASSIGN(const uint64_t busy, ReadNumber(*writer_, "PRAGMA wal_checkpoint(TRUNCATE)"));
  if (busy != 0) return Fail(Code::kTransient, "the catalog is being read; compact again later");
  return {};
}

}  // namespace inferscale
