#include <sys/random.h>

#include <array>
#include <boost/json.hpp>
#include <boost/system/error_code.hpp>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/utf8.h"
#include "memory/fold.h"
#include "memory/half.h"
#include "memory/sqlite_fact_store.h"

namespace inferscale {
namespace {

// Version 7 of RFC 9562: ids made one after the other are neighbours in the index.
std::string MakeUuid(int64_t now_ms) {
  std::array<uint8_t, 16> bytes = {};
  for (size_t got = 0; got < bytes.size();) {
    const ssize_t n = ::getrandom(bytes.data() + got, bytes.size() - got, 0);
    if (n > 0) got += static_cast<size_t>(n);
  }
  for (size_t i = 0; i < 6; ++i) bytes[i] = static_cast<uint8_t>(now_ms >> (40 - 8 * i));
  bytes[6] = static_cast<uint8_t>(0x70 | (bytes[6] & 0x0F));
  bytes[8] = static_cast<uint8_t>(0x80 | (bytes[8] & 0x3F));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(36);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out.push_back('-');
    out.push_back(kDigits[bytes[i] >> 4]);
    out.push_back(kDigits[bytes[i] & 0x0F]);
  }
  return out;
}

bool IsJsonObject(const std::string& text) {
  if (text == "{}") return true;
  boost::system::error_code failed;
  const boost::json::value value = boost::json::parse(text, failed);
  return !failed && value.is_object();
}

Status CheckVector(std::span<const float> vector, std::string_view name) {
  for (const float value : vector) {
    // The negation also catches a NaN.
    if (!(std::fabs(value) <= kMaxHalf)) {
      return Fail(Code::kInvalid, "{}: its vector holds a value that is not within +-{}", name,
                  kMaxHalf);
    }
  }
  return {};
}

void Apply(const FactUpdate& update, Fact& fact) {
  if (update.text) fact.text = *update.text;
  if (update.speaker) fact.speaker = *update.speaker;
  if (update.when_ms) fact.when_ms = *update.when_ms;
  if (update.metadata) fact.metadata = *update.metadata;
  if (update.expires_ms) fact.expires_ms = *update.expires_ms;
}

using Owners = std::set<std::pair<std::string, std::string>>;  // (tenant, user)

// What a change adds to the generation; see FactStore::Generation.
constexpr int64_t kAddition = 1;
constexpr int64_t kOtherChange = int64_t{1} << 32;

Status StartGenerations(SqlDatabase& db, const Owners& owners, int64_t step) {
  for (const auto& [tenant, user] : owners) {
    INFERSCALE_TRY(db.Query("INSERT INTO generations VALUES(?1, ?2) ON CONFLICT(owner) DO UPDATE "
                            "SET generation = generation + ?2",
                            OwnerHash(tenant, user), step)
                       .Run());
  }
  return {};
}

// An empty vector says that there is none yet.
Status PutVector(SqlDatabase& db, int64_t row, std::span<const float> vector,
                 const Hash128& embedder_id) {
  std::vector<uint16_t> halves(vector.size());
  for (size_t i = 0; i < vector.size(); ++i) halves[i] = FloatToHalf(vector[i]);
  return db
      .Query("INSERT OR REPLACE INTO vectors VALUES(?1, ?2, ?3)", row,
             vector.empty() ? Hash128{} : embedder_id, std::as_bytes(std::span(halves)))
      .Run();
}

Status PutHistory(SqlDatabase& db, const Fact& fact, std::string_view event,
                  std::string_view old_text) {
  return db
      .Query("INSERT INTO history VALUES(NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7)", fact.scope.tenant,
             fact.id, fact.version, event, old_text, fact.text, fact.updated_ms)
      .Run();
}

// Forgets the KV and the anchors that depend on the facts in table `changed`.
Status ForgetDependents(SqlDatabase& db) {
  // A fact is covered if fewer than `covered` facts stand before it in its episode.
  INFERSCALE_TRY(
      db.Query("DELETE FROM episode_kv WHERE id IN ("
               "SELECT k.id FROM changed c JOIN facts f ON f.row = c.row "
               "JOIN episode_kv k ON k.episode = f.episode WHERE k.covered > ("
               "SELECT count(*) FROM facts g WHERE g.episode = f.episode AND g.row < f.row) "
               "UNION SELECT k.id FROM changed c JOIN window_facts w ON w.fact = c.row "
               "JOIN episode_kv k ON k.window = w.window)")
          .Run());
  INFERSCALE_TRY(db.Query("DELETE FROM anchors WHERE id IN (SELECT a.anchor FROM changed c "
                          "JOIN anchor_facts a ON a.fact = c.row)")
                     .Run());
  // What could not be encoded may be different now.
  return db
      .Query(
          "DELETE FROM encode_failures WHERE episode IN (SELECT f.episode FROM changed c "
          "JOIN facts f ON f.row = c.row)")
      .Run();
}

// Deletes the facts in table `changed` with all that was derived from them; `owners` had them.
Result<size_t> DeleteChanged(SqlDatabase& db, std::string_view event, int64_t now_ms,
                             Owners& owners) {
  {
    SqlQuery query =
        db.Query("SELECT DISTINCT f.tenant, f.user FROM changed c JOIN facts f ON f.row = c.row");
    for (;;) {
      INFERSCALE_ASSIGN(const bool more, query.Next());
      if (!more) break;
      owners.emplace(query.Text(0), query.Text(1));
    }
  }
  INFERSCALE_TRY(StartGenerations(db, owners, kOtherChange));
  INFERSCALE_TRY(ForgetDependents(db));
  INFERSCALE_TRY(db.Query("UPDATE history SET old_text = '', new_text = '' WHERE fact IN "
                          "(SELECT f.id FROM changed c JOIN facts f ON f.row = c.row)")
                     .Run());
  INFERSCALE_TRY(
      db.Query("INSERT INTO history SELECT NULL, f.tenant, f.id, f.version, ?1, '', '', ?2 "
               "FROM changed c JOIN facts f ON f.row = c.row ORDER BY f.row",
               event, now_ms)
          .Run());
  INFERSCALE_TRY(db.Query("INSERT INTO touched SELECT DISTINCT f.episode FROM changed c "
                          "JOIN facts f ON f.row = c.row")
                     .Run());
  INFERSCALE_TRY(db.Query("DELETE FROM facts WHERE row IN (SELECT row FROM changed)").Run());
  const auto count = static_cast<size_t>(db.Changes());
  INFERSCALE_TRY(db.Query("UPDATE episodes SET (facts, bytes) = (SELECT count(*), "
                          "ifnull(sum(f.bytes), 0) FROM facts f WHERE f.episode = episodes.id) "
                          "WHERE id IN (SELECT episode FROM touched)")
                     .Run());
  INFERSCALE_TRY(db.Query("DELETE FROM episodes WHERE facts = 0 AND id IN "
                          "(SELECT episode FROM touched)")
                     .Run());
  INFERSCALE_TRY(db.Query("DELETE FROM touched").Run());
  INFERSCALE_TRY(db.Query("DELETE FROM changed").Run());
  return count;
}

// One call of Add: remembers which episode each scope fills, and writes what changed at the end.
class Adder {
 public:
  Adder(SqlDatabase& db, const FactStoreOptions& options, const Hash128& embedder_id,
        int64_t now_ms)
      : db_(db), options_(options), embedder_(embedder_id), now_(now_ms) {}

  Result<AddResult> Add(const Fact& new_fact, std::span<const float> vector) {
    const Hash128 same = SameHash(new_fact);
    INFERSCALE_ASSIGN(std::string known, FindSame(db_, same, now_));
    if (!known.empty()) return AddResult{std::move(known), AddEvent::kDuplicate};

    Fact fact = new_fact;
    fact.id = MakeUuid(now_);
    fact.version = 1;
    fact.created_ms = fact.updated_ms = now_;
    INFERSCALE_TRY(Place(fact, same, vector));
    INFERSCALE_TRY(PutHistory(db_, fact, "ADD", ""));
    return AddResult{std::move(fact.id), AddEvent::kAdded};
  }

  Result<AddResult> Restore(const FactWithHistory& restored, std::span<const float> vector) {
    Fact fact = restored.fact;
    const std::string& tenant = fact.scope.tenant;
    {
      SqlQuery known = db_.Query("SELECT tenant FROM facts WHERE id = ?1", fact.id);
      INFERSCALE_ASSIGN(const bool exists, known.Next());
      if (exists && known.Text(0) != tenant) {
        return Fail(Code::kConflict, "fact {} is of another tenant", fact.id);
      }
      if (exists) return AddResult{std::move(fact.id), AddEvent::kDuplicate};
    }
    INFERSCALE_TRY(Place(fact, SameHash(fact), vector));
    // It comes with its past, which may have ended here.
    INFERSCALE_TRY(
        db_.Query("DELETE FROM history WHERE fact = ?1 AND tenant = ?2", fact.id, tenant).Run());
    for (const HistoryEntry& entry : restored.history) {
      INFERSCALE_TRY(db_.Query("INSERT INTO history VALUES(NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                               tenant, fact.id, entry.version, entry.event, entry.old_text,
                               entry.new_text, entry.at_ms)
                         .Run());
    }
    return AddResult{std::move(fact.id), AddEvent::kAdded};
  }

  Status Finish() {
    for (const auto& [scope, episode] : open_) INFERSCALE_TRY(Save(episode));
    std::set<std::string> tenants;
    for (const auto& [tenant, user] : owners_) tenants.insert(tenant);
    for (const std::string& tenant : tenants) INFERSCALE_TRY(CheckFactsQuota(db_, tenant));
    return StartGenerations(db_, owners_, kAddition);
  }

 private:
  struct OpenEpisode {
    int64_t id = 0;  // 0: none yet
    int64_t facts = 0;
    int64_t bytes = 0;
  };
  using ScopeKey = std::tuple<std::string, std::string, std::string, std::string>;

  // Into an episode, with its vector.
  Status Place(Fact& fact, const Hash128& same, std::span<const float> vector) {
    const auto bytes = static_cast<int64_t>(RenderFact(fact).size());
    INFERSCALE_ASSIGN(OpenEpisode * episode, EpisodeFor(fact.scope, bytes));
    fact.episode = episode->id;
    INFERSCALE_TRY(Insert(fact, same, bytes));
    INFERSCALE_TRY(PutVector(db_, db_.LastRow(), vector, embedder_));
    ++episode->facts;
    episode->bytes += bytes;
    owners_.emplace(fact.scope.tenant, fact.scope.user);
    return {};
  }

  Status Insert(const Fact& fact, const Hash128& same, int64_t bytes) {
    const Scope& scope = fact.scope;
    return db_
        .Query(
            "INSERT INTO facts VALUES(NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, "
            "?13, ?14, ?15, ?16)",
            fact.id, scope.tenant, scope.user, scope.agent, scope.run, fact.text, fact.speaker,
            fact.when_ms, fact.metadata, fact.version, fact.created_ms, fact.updated_ms,
            fact.expires_ms, fact.episode, same, bytes)
        .Run();
  }

  // The newest episode of the scope, or a new one if that is full.
  Result<OpenEpisode*> EpisodeFor(const Scope& scope, int64_t bytes) {
    const auto [found, is_new] =
        open_.try_emplace(ScopeKey(scope.tenant, scope.user, scope.agent, scope.run));
    OpenEpisode& episode = found->second;
    if (is_new) {
      SqlQuery newest = db_.Query(
          "SELECT id, facts, bytes FROM episodes WHERE tenant = ?1 AND user = ?2 AND agent = ?3 "
          "AND run = ?4 ORDER BY id DESC LIMIT 1",
          scope.tenant, scope.user, scope.agent, scope.run);
      INFERSCALE_ASSIGN(const bool exists, newest.Next());
      if (exists) episode = {newest.Int(0), newest.Int(1), newest.Int(2)};
    }
    const bool fits = episode.id != 0 && episode.facts < int64_t{options_.episode_facts} &&
                      episode.bytes + bytes <= static_cast<int64_t>(options_.max_episode_bytes);
    if (fits) return &episode;
    if (episode.id != 0) INFERSCALE_TRY(Save(episode));
    INFERSCALE_TRY(db_.Query("INSERT INTO episodes VALUES(NULL, ?1, ?2, ?3, ?4, 0, 0)",
                             scope.tenant, scope.user, scope.agent, scope.run)
                       .Run());
    episode = {db_.LastRow(), 0, 0};
    return &episode;
  }

  Status Save(const OpenEpisode& episode) {
    return db_
        .Query("UPDATE episodes SET facts = ?2, bytes = ?3 WHERE id = ?1", episode.id,
               episode.facts, episode.bytes)
        .Run();
  }

  SqlDatabase& db_;
  const FactStoreOptions& options_;
  const Hash128& embedder_;
  const int64_t now_;
  std::map<ScopeKey, OpenEpisode> open_;
  Owners owners_;
};

}  // namespace

Hash128 SameHash(const Fact& fact) {
  const Scope& scope = fact.scope;
  return Hasher()
      .Add(scope.tenant)
      .Add(scope.user)
      .Add(scope.agent)
      .Add(scope.run)
      .Add(NormalizeForDuplicates(fact))
      .Digest();
}

Result<std::string> FindSame(SqlDatabase& db, const Hash128& same, int64_t now_ms) {
  SqlQuery query = db.Query(
      "SELECT id FROM facts WHERE same = ?1 AND (expires_ms IS NULL OR expires_ms > ?2) "
      "ORDER BY row LIMIT 1",
      same, now_ms);
  INFERSCALE_ASSIGN(const bool found, query.Next());
  return found ? std::string(query.Text(0)) : std::string();
}

Status SqliteFactStore::CheckFact(const Fact& fact, std::string_view name) const {
  const Scope& scope = fact.scope;
  const std::pair<std::string_view, const std::string&> fields[] = {
      {"tenant", scope.tenant},   {"user", scope.user},      {"agent", scope.agent},
      {"run", scope.run},         {"speaker", fact.speaker}, {"text", fact.text},
      {"metadata", fact.metadata}};
  for (const auto& [field, value] : fields) {
    if (const size_t at = FindInvalidUtf8(value); at != std::string_view::npos) {
      return Fail(Code::kInvalid, "{}: its {} is not UTF-8 at byte {}", name, field, at);
    }
  }
  if (IsBlank(fact.text)) return Fail(Code::kInvalid, "{}: its text is empty", name);
  const size_t bytes = fact.text.size() + fact.speaker.size();
  if (bytes > options_.max_text_bytes) {
    return Fail(Code::kInvalid, "{}: text and speaker have {} bytes, more than the {} allowed",
                name, bytes, options_.max_text_bytes);
  }
  if (!IsJsonObject(fact.metadata)) {
    return Fail(Code::kInvalid, "{}: its metadata is not a JSON object", name);
  }
  return {};
}

Result<std::vector<AddResult>> SqliteFactStore::Add(std::span<const Fact> facts,
                                                    std::span<const std::vector<float>> vectors,
                                                    const Hash128& embedder_id) {
  if (!vectors.empty() && vectors.size() != facts.size()) {
    return Fail(Code::kInvalid, "{} facts came with {} vectors", facts.size(), vectors.size());
  }
  for (size_t i = 0; i < facts.size(); ++i) {
    const std::string name = fmt::format("fact {}", i);
    INFERSCALE_TRY(CheckFact(facts[i], name));
    if (!vectors.empty()) INFERSCALE_TRY(CheckVector(vectors[i], name));
  }
  std::vector<AddResult> results;
  if (facts.empty()) return results;

  return Write([&](SqlDatabase& db) -> Result<std::vector<AddResult>> {
    Adder adder(db, options_, embedder_id, clock_.NowMs());
    for (size_t i = 0; i < facts.size(); ++i) {
      const auto vector = vectors.empty() ? std::span<const float>() : std::span(vectors[i]);
      INFERSCALE_ASSIGN(AddResult result, adder.Add(facts[i], vector));
      results.push_back(std::move(result));
    }
    INFERSCALE_TRY(adder.Finish());
    return results;
  });
}

Status SqliteFactStore::CheckFacts(std::span<const FactWithHistory> facts,
                                   std::span<const std::vector<float>> vectors) const {
  if (!vectors.empty() && vectors.size() != facts.size()) {
    return Fail(Code::kInvalid, "{} facts came with {} vectors", facts.size(), vectors.size());
  }
  for (size_t i = 0; i < facts.size(); ++i) {
    const std::string name = fmt::format("fact {}", facts[i].fact.id);
    INFERSCALE_TRY(CheckFact(facts[i].fact, name));
    if (facts[i].fact.id.empty()) return Fail(Code::kInvalid, "fact {} has no id", i);
    for (const HistoryEntry& entry : facts[i].history) {
      for (const std::string* text : {&entry.event, &entry.old_text, &entry.new_text}) {
        if (FindInvalidUtf8(*text) == std::string_view::npos) continue;
        return Fail(Code::kInvalid, "{}: its history is not UTF-8", name);
      }
    }
    if (!vectors.empty()) INFERSCALE_TRY(CheckVector(vectors[i], name));
  }
  return {};
}

Result<std::vector<AddResult>> SqliteFactStore::Restore(std::span<const FactWithHistory> facts,
                                                        std::span<const std::vector<float>> vectors,
                                                        const Hash128& embedder_id) {
  INFERSCALE_TRY(CheckFacts(facts, vectors));
  return Change([&](SqlDatabase& db, Owners& owners) -> Result<std::vector<AddResult>> {
    std::vector<AddResult> results;
    Adder adder(db, options_, embedder_id, clock_.NowMs());
    for (size_t i = 0; i < facts.size(); ++i) {
      const auto vector = vectors.empty() ? std::span<const float>() : std::span(vectors[i]);
      INFERSCALE_ASSIGN(AddResult result, adder.Restore(facts[i], vector));
      if (result.event == AddEvent::kAdded) {
        owners.emplace(facts[i].fact.scope.tenant, facts[i].fact.scope.user);
      }
      results.push_back(std::move(result));
    }
    INFERSCALE_TRY(adder.Finish());
    return results;
  });
}

Result<Fact> SqliteFactStore::Update(const std::string& tenant, const std::string& id,
                                     const FactUpdate& update, std::span<const float> vector,
                                     const Hash128& embedder_id) {
  const std::string name = fmt::format("fact {}", id);
  INFERSCALE_TRY(CheckVector(vector, name));
  return Change([&](SqlDatabase& db, Owners& owners) -> Result<Fact> {
    const int64_t now = clock_.NowMs();
    INFERSCALE_ASSIGN(const Fact before, FindFact(db, tenant, id, now));
    Fact fact = before;
    Apply(update, fact);
    INFERSCALE_TRY(CheckFact(fact, name));
    const bool says_else = fact.text != before.text || fact.speaker != before.speaker ||
                           fact.when_ms != before.when_ms;
    if (says_else) ++fact.version;
    fact.updated_ms = now;
    const std::string line = RenderFact(fact);
    const auto bytes = static_cast<int64_t>(line.size());
    if (line != RenderFact(before)) {
      INFERSCALE_TRY(db.Query("INSERT INTO changed VALUES(?1)", fact.row).Run());
      INFERSCALE_TRY(ForgetDependents(db));
      INFERSCALE_TRY(db.Query("DELETE FROM changed").Run());
      INFERSCALE_TRY(PutVector(db, fact.row, {}, embedder_id));
      INFERSCALE_TRY(db.Query("UPDATE episodes SET bytes = bytes + ?2 - (SELECT bytes FROM "
                              "facts WHERE row = ?3) WHERE id = ?1",
                              fact.episode, bytes, fact.row)
                         .Run());
    }
    INFERSCALE_TRY(db.Query("UPDATE facts SET text = ?2, speaker = ?3, when_ms = ?4, metadata "
                            "= ?5, version = ?6, updated_ms = ?7, expires_ms = ?8, same = ?9, "
                            "bytes = ?10 WHERE row = ?1",
                            fact.row, fact.text, fact.speaker, fact.when_ms, fact.metadata,
                            fact.version, fact.updated_ms, fact.expires_ms, SameHash(fact), bytes)
                       .Run());
    if (!vector.empty()) INFERSCALE_TRY(PutVector(db, fact.row, vector, embedder_id));
    if (says_else) INFERSCALE_TRY(PutHistory(db, fact, "UPDATE", before.text));
    owners.emplace(tenant, fact.scope.user);
    INFERSCALE_TRY(StartGenerations(db, owners, kOtherChange));
    return fact;
  });
}

Result<size_t> SqliteFactStore::Delete(const std::string& tenant,
                                       std::span<const std::string> ids) {
  return Change([&](SqlDatabase& db, Owners& owners) -> Result<size_t> {
    for (const std::string& id : ids) {
      INFERSCALE_TRY(db.Query("INSERT OR IGNORE INTO changed SELECT row FROM facts WHERE id = "
                              "?1 AND tenant = ?2",
                              id, tenant)
                         .Run());
    }
    return DeleteChanged(db, "DELETE", clock_.NowMs(), owners);
  });
}

Result<size_t> SqliteFactStore::DeleteScope(const Scope& scope) {
  return Change([&](SqlDatabase& db, Owners& owners) -> Result<size_t> {
    INFERSCALE_TRY(
        db.Query("INSERT INTO changed SELECT row FROM facts f WHERE " + ScopeCondition(scope),
                 scope.tenant, scope.user, scope.agent, scope.run)
            .Run());
    return DeleteChanged(db, "DELETE", clock_.NowMs(), owners);
  });
}

Result<size_t> SqliteFactStore::DeleteExpired() {
  const int64_t now = clock_.NowMs();
  // It is asked often and there is rarely anything: look before taking the write lock.
  const auto any = Read([&](SqlDatabase& db) {
    return db.QueryInt("SELECT EXISTS (SELECT 1 FROM facts WHERE expires_ms <= ?1)", now);
  });
  if (!any) return tl::unexpected(any.error());
  if (*any == 0) return size_t{0};
  return Change([&](SqlDatabase& db, Owners& owners) -> Result<size_t> {
    INFERSCALE_TRY(
        db.Query("INSERT INTO changed SELECT row FROM facts WHERE expires_ms <= ?1", now).Run());
    return DeleteChanged(db, "EXPIRE", now, owners);
  });
}

Status SqliteFactStore::PutVectors(std::span<const int64_t> rows,
                                   std::span<const std::vector<float>> vectors,
                                   const Hash128& embedder_id) {
  if (rows.size() != vectors.size()) {
    return Fail(Code::kInvalid, "{} rows came with {} vectors", rows.size(), vectors.size());
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    INFERSCALE_TRY(CheckVector(vectors[i], fmt::format("row {}", rows[i])));
  }
  return Change([&](SqlDatabase& db, Owners& owners) -> Status {
    for (size_t i = 0; i < rows.size(); ++i) {
      SqlQuery owner = db.Query("SELECT tenant, user FROM facts WHERE row = ?1", rows[i]);
      INFERSCALE_ASSIGN(const bool exists, owner.Next());
      if (!exists) continue;  // deleted while its vector was computed
      owners.emplace(owner.Text(0), owner.Text(1));
      INFERSCALE_TRY(PutVector(db, rows[i], vectors[i], embedder_id));
    }
    return StartGenerations(db, owners, kOtherChange);
  });
}

}  // namespace inferscale
