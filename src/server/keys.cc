#include "server/keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include <array>
#include <utility>

#include "base/utf8.h"

namespace inferscale {
namespace {

constexpr SqlKind kKind = {
    .name = "a file of keys",
    .application_id = 0x49534B59,  // "ISKY"
    .version = 1,
    .tables =
        "CREATE TABLE keys(id TEXT PRIMARY KEY, tenant TEXT NOT NULL, access INTEGER NOT NULL,"
        " name TEXT NOT NULL, per_minute INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
        " revoked_ms INTEGER, digest BLOB NOT NULL);"};
constexpr std::string_view kPrefix = "isk-";
constexpr size_t kIdBytes = 6;
constexpr size_t kSecretBytes = 32;
constexpr size_t kKeyLength = kPrefix.size() + 2 * kIdBytes + 1 + 2 * kSecretBytes;
constexpr size_t kMaxNameBytes = 200;

using Digest = std::array<std::byte, 32>;

std::string RandomHex(size_t bytes) {
  std::vector<uint8_t> random(bytes);
  for (size_t got = 0; got < bytes;) {
    const ssize_t n = ::getrandom(random.data() + got, bytes - got, 0);
    if (n > 0) got += static_cast<size_t>(n);
  }
  std::string hex;
  for (const uint8_t byte : random) hex += fmt::format("{:02x}", byte);
  return hex;
}

Result<Digest> Sha256(std::string_view text) {
  Digest digest;
  if (EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr,
                 EVP_sha256(), nullptr) != 1) {
    return Fail(Code::kInternal, "libcrypto has no SHA-256");
  }
  return digest;
}

constexpr std::string_view kColumns =
    "id, tenant, access, name, per_minute, created_ms, revoked_ms, digest";

KeyInfo ReadKey(const SqlQuery& query) {
  KeyInfo info;
  info.id = query.Text(0);
  info.spec.tenant = query.Text(1);
  info.spec.access = static_cast<Access>(query.Int(2));
  info.spec.name = query.Text(3);
  info.spec.per_minute = static_cast<uint32_t>(query.Int(4));
  info.created_ms = query.Int(5);
  info.revoked_ms = query.MaybeInt(6);
  return info;
}

Status CheckSpec(const KeySpec& spec) {
  if (spec.tenant.empty()) return Fail(Code::kInvalid, "a key needs a tenant");
  if (spec.access == Access::kOpen) return Fail(Code::kInvalid, "a key needs an access");
  if (spec.name.size() > kMaxNameBytes || spec.tenant.size() > kMaxNameBytes) {
    return Fail(Code::kInvalid, "names have at most {} bytes", kMaxNameBytes);
  }
  if (FindInvalidUtf8(spec.name) != std::string::npos ||
      FindInvalidUtf8(spec.tenant) != std::string::npos) {
    return Fail(Code::kInvalid, "names must be UTF-8");
  }
  return {};
}

std::string MakeKey(const std::string& id) {
  return fmt::format("{}{}-{}", kPrefix, id, RandomHex(kSecretBytes));
}

}  // namespace

std::string_view KeyAccessName(Access access) {
  switch (access) {
    case Access::kRead:
      return "read";
    case Access::kWrite:
      return "write";
    case Access::kAdmin:
      return "admin";
    case Access::kOpen:
      break;
  }
  return "none";
}

Result<Access> ParseKeyAccess(std::string_view name) {
  for (const Access access : {Access::kRead, Access::kWrite, Access::kAdmin}) {
    if (name == KeyAccessName(access)) return access;
  }
  return Fail(Code::kInvalid, "an access is read, write or admin");
}

KeyStore::KeyStore(const Clock& clock, std::unique_ptr<SqlDatabase> db)
    : clock_(clock), db_(std::move(db)) {}

Result<std::unique_ptr<KeyStore>> KeyStore::Open(const Clock& clock, const std::string& path) {
  INFERSCALE_TRY(CreatePrivateFile(path));
  INFERSCALE_ASSIGN(auto db, SqlDatabase::Open(path, {.cache_kib = 256}));
  INFERSCALE_TRY(PrepareTables(*db, kKind));
  return std::unique_ptr<KeyStore>(new KeyStore(clock, std::move(db)));
}

Result<NewKey> KeyStore::Insert(const KeySpec& spec) {
  INFERSCALE_TRY(CheckSpec(spec));
  NewKey made;
  made.info = {RandomHex(kIdBytes), spec, clock_.NowMs(), std::nullopt};
  made.key = MakeKey(made.info.id);
  INFERSCALE_ASSIGN(const Digest digest, Sha256(made.key));
  INFERSCALE_TRY(db_->Query("INSERT INTO keys VALUES(?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7)",
                            made.info.id, spec.tenant, static_cast<int64_t>(spec.access), spec.name,
                            spec.per_minute, made.info.created_ms, ByteSpan(digest))
                     .Run());
  return made;
}

Result<NewKey> KeyStore::Create(const KeySpec& spec) {
  MutexLock lock(mutex_);
  return Insert(spec);
}

Result<std::optional<NewKey>> KeyStore::CreateFirst(const KeySpec& spec) {
  MutexLock lock(mutex_);
  INFERSCALE_ASSIGN(SqlTransaction transaction, SqlTransaction::Begin(*db_));
  INFERSCALE_ASSIGN(const int64_t count, db_->QueryInt("SELECT count(*) FROM keys"));
  if (count > 0) return std::nullopt;
  INFERSCALE_ASSIGN(NewKey made, Insert(spec));
  INFERSCALE_TRY(transaction.Commit());
  return std::optional<NewKey>(std::move(made));
}

Result<NewKey> KeyStore::Rotate(const std::string& id) {
  NewKey made;
  made.key = MakeKey(id);
  INFERSCALE_ASSIGN(const Digest digest, Sha256(made.key));
  static const std::string kSql = fmt::format(
      "UPDATE keys SET digest = ?2, created_ms = ?3 WHERE id = ?1 AND revoked_ms IS NULL "
      "RETURNING {}",
      kColumns);
  MutexLock lock(mutex_);
  SqlQuery query = db_->Query(kSql, id, ByteSpan(digest), clock_.NowMs());
  INFERSCALE_ASSIGN(const bool found, query.Next());
  if (!found) return Fail(Code::kNotFound, "there is no such key, or it is revoked");
  made.info = ReadKey(query);
  INFERSCALE_TRY(query.Next());  // to its end, which commits
  return made;
}

Status KeyStore::Revoke(const std::string& id) {
  MutexLock lock(mutex_);
  // The digest goes too: nothing is left that a secret could be compared with.
  INFERSCALE_TRY(db_->Query("UPDATE keys SET revoked_ms = coalesce(revoked_ms, ?2), digest = x'' "
                            "WHERE id = ?1",
                            id, clock_.NowMs())
                     .Run());
  if (db_->Changes() == 0) return Fail(Code::kNotFound, "there is no such key");
  return {};
}

Result<std::vector<KeyInfo>> KeyStore::List() {
  static const std::string kSql =
      fmt::format("SELECT {} FROM keys ORDER BY created_ms, id", kColumns);
  MutexLock lock(mutex_);
  SqlQuery query = db_->Query(kSql);
  std::vector<KeyInfo> keys;
  for (;;) {
    INFERSCALE_ASSIGN(const bool more, query.Next());
    if (!more) return keys;
    keys.push_back(ReadKey(query));
  }
}

Result<bool> KeyStore::Any() {
  MutexLock lock(mutex_);
  INFERSCALE_ASSIGN(const int64_t any, db_->QueryInt("SELECT EXISTS (SELECT 1 FROM keys)"));
  return any != 0;
}

Result<KeyInfo> KeyStore::Check(std::string_view key) {
  static const std::string kSql = fmt::format("SELECT {} FROM keys WHERE id = ?1", kColumns);
  const auto none = [] { return Fail(Code::kNotFound, "there is no such key"); };
  if (key.size() != kKeyLength || !key.starts_with(kPrefix)) return none();
  INFERSCALE_ASSIGN(const Digest digest, Sha256(key));
  MutexLock lock(mutex_);
  SqlQuery query = db_->Query(kSql, key.substr(kPrefix.size(), 2 * kIdBytes));
  INFERSCALE_ASSIGN(const bool found, query.Next());
  if (!found) return none();
  const ByteSpan kept = query.Blob(7);
  if (kept.size() != digest.size() ||
      CRYPTO_memcmp(kept.data(), digest.data(), digest.size()) != 0 || !query.IsNull(6)) {
    return none();
  }
  return ReadKey(query);
}

}  // namespace inferscale
