#include "app/app.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include "app/app_impl.h"
#include "kv/rank_key.h"

namespace inferscale {
namespace {

constexpr size_t kAddBatch = 64;  // facts in a transaction
constexpr size_t kTokenCacheFacts = 65536;
constexpr size_t kGarbageBatch = 1024;
// How long an encoder or a compaction waits for the batch of another process.
constexpr std::chrono::seconds kEncoderPatience(20);
constexpr std::chrono::milliseconds kEncoderPause(50);

}  // namespace

std::string_view MemoryModeName(MemoryMode mode) {
  switch (mode) {
    case MemoryMode::kKv:
      return "kv";
    case MemoryMode::kText:
      return "text";
    case MemoryMode::kNone:
      return "none";
    case MemoryMode::kAuto:
      return "auto";
  }
  return "unknown";
}

Result<MemoryMode> ParseMemoryMode(std::string_view name) {
  for (MemoryMode mode :
       {MemoryMode::kKv, MemoryMode::kText, MemoryMode::kNone, MemoryMode::kAuto}) {
    if (name == MemoryModeName(mode)) return mode;
  }
  return Fail(Code::kInvalid, "mode '{}' is none of auto, kv, text, none", name);
}

std::string_view TierName(Tier tier) {
  switch (tier) {
    case Tier::kHost:
      return "memory";
    case Tier::kDisk:
      return "disk";
    case Tier::kDevice:
      return "device";
    case Tier::kEngine:
      return "engine";
  }
  return "unknown";
}

std::string_view KvCodecName(KvCodec codec) {
  switch (codec) {
    case KvCodec::kNone:
      return "none";
    case KvCodec::kInt8:
      return "int8";
    case KvCodec::kFp8:
      return "fp8";
  }
  return "unknown";
}

Result<KvCodec> ParseKvCodec(std::string_view name) {
  for (KvCodec codec : {KvCodec::kNone, KvCodec::kInt8, KvCodec::kFp8}) {
    if (name == KvCodecName(codec)) return codec;
  }
  return Fail(Code::kInvalid, "KV codec '{}' is none of none, int8, fp8", name);
}

std::vector<Fact> TurnFacts(const Scope& scope, const std::string& question,
                            const std::string& answer, int64_t when_ms) {
  Fact turn;
  turn.scope = scope;
  turn.when_ms = when_ms;
  turn.speaker = "User";
  turn.text = question;
  std::vector<Fact> turns = {turn};
  if (answer.find_first_not_of(" \t\n") == std::string::npos) return turns;
  turn.speaker = "Assistant";
  turn.text = answer;
  turns.push_back(std::move(turn));
  return turns;
}

Result<std::unique_ptr<App>> OpenApp(AppOptions options, Models models) {
  auto app = std::make_unique<AppImpl>(std::move(options), std::move(models));
  INFERSCALE_TRY(app->Open());
  return app;
}

namespace {

// An engine that stores KV itself gives no records to take a mean of: one window then.
AppOptions Fitting(AppOptions options, const Engine* engine) {
  std::vector<uint32_t>& counts = options.window.counts;
  if (engine != nullptr && engine->info().stores_kv && counts.size() > 1) {
    const std::string asked = options.window.ToString();
    counts.resize(1);
    spdlog::warn("this engine keeps no mean of several windows: of {} {} is used", asked,
                 options.window.ToString());
  }
  return options;
}

}  // namespace

AppImpl::AppImpl(AppOptions options, Models models)
    : options_(Fitting(std::move(options), models.engine.get())),
      embedder_(std::move(models.embedder)),
      engine_(std::move(models.engine)) {}

AppImpl::~AppImpl() {
  if (encoder_.joinable()) {
    encoder_.request_stop();
    encoder_.join();
  }
}

Status AppImpl::Open() {
  if (options_.data_dir.empty()) return Fail(Code::kInvalid, "no data directory was named");
  std::error_code error;
  std::filesystem::create_directories(options_.data_dir, error);
  if (error) {
    return Fail(Code::kTransient, "data directory '{}' can't be made: {}", options_.data_dir,
                error.message());
  }
  const auto on_change = [this](const std::string& tenant, const std::string& user) {
    ForgetDerived(tenant, user);
  };
  INFERSCALE_ASSIGN(facts_, FactStore::Open(clock_, {.path = options_.data_dir + "/memory.db",
                                                     .episode_facts = options_.episode_facts,
                                                     .on_change = on_change}));
  INFERSCALE_ASSIGN(kv_, KvStore::Open(SystemEnv(), clock_,
                                       {.dir = options_.data_dir + "/kv",
                                        .arena_bytes = options_.arena_bytes,
                                        .disk_bytes = options_.disk_bytes}));
  if (const std::string audit = options_.data_dir + "/audit.db";
      options_.audit || std::filesystem::exists(audit)) {
    INFERSCALE_ASSIGN(audit_, AuditLog::Open(audit));
  }
  quotas_ = std::make_unique<EncodeQuotas>(*facts_, *kv_, clock_);
  INFERSCALE_TRY(facts_->DeleteExpired());
  INFERSCALE_TRY(CollectGarbage());
  if (embedder_ != nullptr) INFERSCALE_TRY(OpenSearch());
  if (engine_ != nullptr) INFERSCALE_TRY(OpenAnswers());
  return {};
}

Status AppImpl::OpenSearch() {
  const auto on_change = [this](const std::string& tenant, const std::string& user) {
    if (fact_tokens_ != nullptr) fact_tokens_->Forget(tenant, user);
  };
  index_ = std::make_unique<SearchIndex>(
      *facts_, clock_, embedder_->identity(),
      SearchIndexOptions{.memory_bytes = options_.index_bytes, .on_change = on_change});
  return PutMissingVectors();
}

// After a change of the embedder every fact needs a new vector before it can be found by meaning.
Status AppImpl::PutMissingVectors() {
  while (true) {
    INFERSCALE_ASSIGN(const std::vector<Fact> facts,
                      facts_->WithoutVector(embedder_->identity(), kAddBatch));
    if (facts.empty()) return {};
    std::vector<std::string> texts;
    std::vector<int64_t> rows;
    for (const Fact& fact : facts) {
      texts.push_back(RenderFact(fact));
      rows.push_back(fact.row);
    }
    INFERSCALE_ASSIGN(const auto vectors, embedder_->Embed(texts));
    INFERSCALE_TRY(facts_->PutVectors(rows, vectors, embedder_->identity()));
  }
}

Status AppImpl::OpenAnswers() {
  INFERSCALE_TRY(facts_->UseRanks(engine_->info().kv_ranks));
  INFERSCALE_ASSIGN(codec_,
                    RecordCodec::Open(options_.kv_codec, *engine_, options_.data_dir + "/kv"));
  fact_tokens_ = std::make_unique<FactTokens>(engine_->format(), kTokenCacheFacts);
  windows_ = std::make_unique<WindowChooser>(
      *facts_, options_.window,
      [this](const Episode& episode, size_t count) { return Neighbours(episode, count); });
  INFERSCALE_ASSIGN(header_, engine_->format().Header(options_.system));
  encoding_ = EncodingId(options_.window, header_);
  header_key_ = Hasher()
                    .Add("header")
                    .Add(engine_->info().fingerprint)
                    .AddBytes(std::as_bytes(std::span(header_)))
                    .Digest();
  return EnsureHeaderKv();
}

// The header is the same for every question and stands at its true place: its KV is exact. It is
// never quantised: it is stored once, and the first token's keys and values are the most unusual.
Status AppImpl::EnsureHeaderKv() {
  const ModelInfo& model = engine_->info();
  if (!model.injection) return {};
  INFERSCALE_ASSIGN(const auto missing, MissingKv({&header_key_, 1}));
  if (!missing.empty()) {
    if (Status stored = StoreHeaderKv(); !stored) {
      // A full disk or a server that is away costs the header's KV, not the answer.
      spdlog::warn("the header's KV was not stored: {}", stored.error().message);
      return {};
    }
  }
  header_has_kv_ = true;
  std::string label = fmt::format("{}, {}", model.name.empty() ? model.architecture : model.name,
                                  options_.window.ToString());
  if (options_.kv_codec != KvCodec::kNone) {
    label.append(", ").append(KvCodecName(options_.kv_codec));
  }
  return facts_->UseSetting({codec_->fingerprint(), encoding_, std::move(label), header_key_});
}

Status AppImpl::StoreHeaderKv() {
  const ModelInfo& model = engine_->info();
  const auto tokens = static_cast<uint32_t>(header_.size());
  INFERSCALE_ASSIGN(
      const EncodeResult result,
      engine_->Encode({.prefix = {}, .items = {{header_, {{0, tokens, header_key_}}}}}));
  if (model.stores_kv) {
    INFERSCALE_TRY(AwaitKv(std::span(&header_key_, 1)));
    return {};
  }
  const KvPut put{{header_key_, {}, model.fingerprint, model.shape, header_},
                  result.records.front().front().data};
  return kv_->Put(std::span(&put, 1));
}

Status AppImpl::NeedAtLeast(Need need, std::string_view what) const {
  const bool there = need == Need::kAnswer ? engine_ != nullptr : embedder_ != nullptr;
  if (there) return {};
  return Fail(Code::kInternal, "{} needs a model that was not opened", what);
}

// The change itself is committed: what can't be erased now stays on the garbage list.
Erased AppImpl::EraseKvOfTheGone(size_t facts) {
  const auto records = EraseGarbage();
  if (!records) {
    spdlog::warn("KV of changed facts is not erased yet: {}", records.error().message);
  }
  return {facts, records.value_or(0), !records.has_value()};
}

void AppImpl::ForgetDerived(const std::string& tenant, const std::string& user) {
  if (index_ != nullptr) index_->Forget(tenant, user);
  if (fact_tokens_ != nullptr) fact_tokens_->Forget(tenant, user);
}

void AppImpl::WakeEncoder() {
  {
    const std::lock_guard lock(wake_mutex_);
    last_add_ms_ = clock_.NowMs();
  }
  wake_.notify_all();
}

// ---- facts -------------------------------------------------------------------------------------

Result<std::vector<AddResult>> AppImpl::Add(std::span<const Fact> facts) {
  INFERSCALE_TRY(NeedAtLeast(Need::kSearch, "Add"));
  for (size_t i = 0; i < facts.size(); ++i) {
    const Scope& scope = facts[i].scope;
    if (scope.user.empty() && scope.agent.empty() && scope.run.empty()) {
      return Fail(Code::kInvalid, "fact {} has no user, agent or run", i);
    }
  }
  std::vector<AddResult> results;
  results.reserve(facts.size());
  for (size_t first = 0; first < facts.size(); first += kAddBatch) {
    const auto batch = facts.subspan(first, std::min(kAddBatch, facts.size() - first));
    INFERSCALE_ASSIGN(const std::vector<std::string> known, facts_->FindDuplicates(batch));
    std::vector<std::string> texts;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (known[i].empty()) texts.push_back(RenderFact(batch[i]));
    }
    std::vector<std::vector<float>> fresh;
    if (!texts.empty()) {
      INFERSCALE_ASSIGN(fresh, embedder_->Embed(texts));
    }
    std::vector<std::vector<float>> vectors(batch.size());
    for (size_t i = 0, next = 0; i < batch.size(); ++i) {
      if (known[i].empty()) vectors[i] = std::move(fresh[next++]);
    }
    INFERSCALE_ASSIGN(std::vector<AddResult> added,
                      facts_->Add(batch, vectors, embedder_->identity()));
    std::move(added.begin(), added.end(), std::back_inserter(results));
  }
  WakeEncoder();
  return results;
}

Result<std::vector<AddResult>> AppImpl::Restore(std::span<const FactWithHistory> facts) {
  INFERSCALE_TRY(NeedAtLeast(Need::kSearch, "Restore"));
  std::vector<AddResult> results;
  results.reserve(facts.size());
  for (size_t first = 0; first < facts.size(); first += kAddBatch) {
    const auto batch = facts.subspan(first, std::min(kAddBatch, facts.size() - first));
    // Vectors of those that are there already are not needed: an import that is run again is quick.
    std::vector<std::string> texts;
    std::vector<size_t> fresh;
    for (size_t i = 0; i < batch.size(); ++i) {
      const Fact& fact = batch[i].fact;
      if (facts_->Get(fact.scope.tenant, fact.id)) continue;
      fresh.push_back(i);
      texts.push_back(RenderFact(fact));
    }
    std::vector<std::vector<float>> vectors(batch.size());
    if (!texts.empty()) {
      INFERSCALE_ASSIGN(auto made, embedder_->Embed(texts));
      for (size_t i = 0; i < fresh.size(); ++i) vectors[fresh[i]] = std::move(made[i]);
    }
    INFERSCALE_ASSIGN(std::vector<AddResult> restored,
                      facts_->Restore(batch, vectors, embedder_->identity()));
    std::move(restored.begin(), restored.end(), std::back_inserter(results));
  }
  WakeEncoder();
  return results;
}

Result<Fact> AppImpl::Update(const std::string& tenant, const std::string& id,
                             const FactUpdate& update) {
  INFERSCALE_TRY(NeedAtLeast(Need::kSearch, "Update"));
  INFERSCALE_ASSIGN(Fact fact, facts_->Get(tenant, id));
  const std::string before = RenderFact(fact);
  if (update.text) fact.text = *update.text;
  if (update.speaker) fact.speaker = *update.speaker;
  if (update.when_ms) fact.when_ms = update.when_ms;
  std::vector<float> vector;
  if (const std::string line = RenderFact(fact); line != before) {
    INFERSCALE_ASSIGN(vector, embedder_->EmbedOne(line));
  }
  INFERSCALE_ASSIGN(Fact updated,
                    facts_->Update(tenant, id, update, vector, embedder_->identity()));
  EraseKvOfTheGone(0);
  WakeEncoder();
  return updated;
}

Result<Erased> AppImpl::Delete(const std::string& tenant, std::span<const std::string> ids) {
  INFERSCALE_ASSIGN(const size_t count, facts_->Delete(tenant, ids));
  const Erased erased = EraseKvOfTheGone(count);
  WakeEncoder();
  return erased;
}

Result<Erased> AppImpl::DeleteScope(const Scope& scope) {
  INFERSCALE_ASSIGN(const size_t count, facts_->DeleteScope(scope));
  if (audit_ != nullptr) INFERSCALE_TRY(audit_->DeleteScope(scope));
  const Erased erased = EraseKvOfTheGone(count);
  WakeEncoder();
  return erased;
}

Result<std::vector<SearchResult>> AppImpl::Search(const Scope& scope, const std::string& text,
                                                  size_t limit, const Filter* filter) {
  return SearchUsers(scope, std::span(&scope.user, 1), text, limit, filter);
}

Result<std::vector<SearchResult>> AppImpl::SearchUsers(const Scope& scope,
                                                       std::span<const std::string> users,
                                                       const std::string& text, size_t limit,
                                                       const Filter* filter) {
  INFERSCALE_TRY(NeedAtLeast(Need::kSearch, "Search"));
  INFERSCALE_ASSIGN(const std::vector<float> vector, embedder_->EmbedOne(text));
  std::vector<SearchHit> hits;
  for (const std::string& user : users) {
    const Scope of_user{scope.tenant, user, scope.agent, scope.run};
    INFERSCALE_ASSIGN(const std::vector<SearchHit> more,
                      index_->Search({of_user, text, vector, limit, filter}));
    hits.insert(hits.end(), more.begin(), more.end());
  }
  if (users.size() > 1) {
    std::stable_sort(hits.begin(), hits.end(),
                     [](const SearchHit& a, const SearchHit& b) { return a.cosine > b.cosine; });
    hits.resize(std::min(hits.size(), limit));
  }
  std::vector<int64_t> rows;
  rows.reserve(hits.size());
  for (const SearchHit& hit : hits) rows.push_back(hit.row);
  INFERSCALE_ASSIGN(std::vector<Fact> facts, facts_->GetRows(rows));
  std::unordered_map<int64_t, Fact*> by_row;
  for (Fact& fact : facts) by_row.emplace(fact.row, &fact);
  std::vector<SearchResult> results;
  for (const SearchHit& hit : hits) {
    if (const auto found = by_row.find(hit.row); found != by_row.end()) {
      results.push_back({std::move(*found->second), hit});
    }
  }
  return results;
}

// ---- upkeep ------------------------------------------------------------------------------------

Result<std::vector<size_t>> AppImpl::MissingKv(std::span<const Hash128> keys) {
  const uint32_t ranks = engine_->info().kv_ranks;
  INFERSCALE_ASSIGN(std::vector<size_t> missing, kv_->Missing(RankKeys(keys, ranks)));
  for (size_t& i : missing) i /= ranks;
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

Result<std::vector<Hash128>> AppImpl::KeysOfAnyRank(std::span<const Hash128> keys) {
  // Asked for every time: another process may have come with another number.
  INFERSCALE_ASSIGN(const std::vector<uint32_t> rank_counts, facts_->RankCounts());
  std::vector<Hash128> all;
  for (const uint32_t ranks : rank_counts) {
    const auto some = RankKeys(keys, ranks);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

Status AppImpl::EraseKv(std::span<const Hash128> keys) {
  if (keys.empty()) return {};
  INFERSCALE_ASSIGN(const auto records, KeysOfAnyRank(keys));
  return kv_->Erase(records);
}

Result<size_t> AppImpl::EraseGarbage() {
  size_t records = 0;
  while (true) {
    INFERSCALE_ASSIGN(const std::vector<Hash128> keys, facts_->Garbage(kGarbageBatch));
    if (keys.empty()) return records;
    INFERSCALE_TRY(EraseKv(keys));
    INFERSCALE_TRY(facts_->ClearGarbage(keys));
    records += keys.size();
  }
}

Status AppImpl::CollectGarbage() {
  INFERSCALE_TRY(EraseGarbage());
  return {};
}

Result<std::vector<UnusedKv>> AppImpl::FindUnused(bool drop) {
  INFERSCALE_ASSIGN(const std::vector<KvSetting> settings, facts_->Settings());
  std::vector<UnusedKv> unused;
  for (const KvSetting& setting : settings) {
    const bool in_use = engine_ == nullptr ? &setting == &settings.front()
                                           : setting.fingerprint == codec_->fingerprint() &&
                                                 setting.encoding == encoding_;
    if (in_use) continue;
    INFERSCALE_ASSIGN(const auto keys, facts_->KeysOf(setting.fingerprint, setting.encoding));
    INFERSCALE_ASSIGN(const auto records, KeysOfAnyRank(keys));
    INFERSCALE_ASSIGN(const uint64_t bytes, kv_->BytesOf(records));
    if (!keys.empty()) unused.push_back({setting.label, setting.used_ms, keys.size(), bytes});
    if (drop) INFERSCALE_TRY(facts_->DropSetting(setting.fingerprint, setting.encoding));
  }
  return unused;
}

// Records that a crash left between the two stores.
Status AppImpl::SweepOrphans() {
  INFERSCALE_ASSIGN(const std::vector<Hash128> keys, kv_->Keys());
  INFERSCALE_ASSIGN(const std::vector<uint32_t> rank_counts, facts_->RankCounts());
  std::vector<Hash128> orphans;
  for (const Hash128& key : keys) {
    bool referenced = false;
    for (const uint32_t ranks : rank_counts) {
      for (const Hash128& origin : RankKeys({&key, 1}, ranks)) {
        if (referenced) break;
        INFERSCALE_ASSIGN(referenced, facts_->IsReferenced(origin));
      }
    }
    if (!referenced) orphans.push_back(key);
  }
  return kv_->Erase(orphans);
}

Result<std::unique_ptr<FileLock>> AppImpl::WaitForEncoder() {
  const auto until = std::chrono::steady_clock::now() + kEncoderPatience;
  const auto wait = [&](const char* name) -> Result<std::unique_ptr<FileLock>> {
    while (true) {
      auto lock = SystemEnv().Lock(options_.data_dir + name);
      if (lock || lock.error().code != Code::kConflict) return lock;
      if (std::chrono::steady_clock::now() > until) return lock;
      std::this_thread::sleep_for(kEncoderPause);
    }
  };
  INFERSCALE_ASSIGN(const auto turn, wait("/encode.turn"));
  return wait("/encode.lock");
}

Result<std::unique_ptr<FileLock>> AppImpl::TryEncoder() {
  // Whoever waits holds this one: an encoder that is back as soon as it has let go comes after it.
  INFERSCALE_ASSIGN(const auto turn, SystemEnv().Lock(options_.data_dir + "/encode.turn"));
  return SystemEnv().Lock(options_.data_dir + "/encode.lock");
}

bool AppImpl::EncoderIsAwaited() {
  if (compactions_ > 0) return true;
  const auto turn = SystemEnv().Lock(options_.data_dir + "/encode.turn");
  return !turn && turn.error().code == Code::kConflict;
}

Result<CompactResult> AppImpl::Compact(bool drop_unused) {
  CompactResult result;
  INFERSCALE_TRY(facts_->DeleteExpired());
  {
    // Not while an encoder is between the two stores.
    ++compactions_;
    const std::shared_ptr<void> done(nullptr, [this](void*) { --compactions_; });
    MutexLock lock(encode_mutex_);
    INFERSCALE_ASSIGN(const auto file_lock, WaitForEncoder());
    INFERSCALE_ASSIGN(result.unused, FindUnused(drop_unused));
    INFERSCALE_TRY(CollectGarbage());
    INFERSCALE_TRY(SweepOrphans());
  }
  INFERSCALE_TRY(facts_->Compact());
  if (audit_ != nullptr) INFERSCALE_TRY(audit_->Compact());
  INFERSCALE_ASSIGN(result.files, kv_->Compact(/*full=*/true));
  return result;
}

Result<bool> AppImpl::Verify() {
  INFERSCALE_TRY(facts_->Verify());
  return kv_->Verify();
}

Result<AppStats> AppImpl::Stats() {
  AppStats stats;
  INFERSCALE_ASSIGN(stats.facts, facts_->Stats(codec_ ? codec_->fingerprint() : Fingerprint{}));
  stats.kv = kv_->stats();
  if (codec_) stats.record_shape = codec_->shape();
  stats.stale_kv = stale_kv_;
  return stats;
}

Result<TenantUse> AppImpl::UseUnder(const TenantQuota& quota, const std::string& tenant) {
  TenantUse use{tenant, quota, 0, 0};
  INFERSCALE_ASSIGN(use.facts, facts_->CountFacts(tenant));
  INFERSCALE_ASSIGN(use.kv_bytes, kv_->TenantBytes(tenant));
  return use;
}

Result<TenantUse> AppImpl::UseOf(const std::string& tenant) {
  INFERSCALE_ASSIGN(const TenantQuota quota, facts_->GetQuota(tenant));
  return UseUnder(quota, tenant);
}

Result<std::vector<TenantUse>> AppImpl::UseOfLimited(size_t most) {
  INFERSCALE_ASSIGN(const auto quotas, facts_->Quotas());
  std::vector<TenantUse> uses;
  for (const auto& [tenant, quota] : std::span(quotas).first(std::min(most, quotas.size()))) {
    INFERSCALE_ASSIGN(TenantUse use, UseUnder(quota, tenant));
    uses.push_back(std::move(use));
  }
  return uses;
}

}  // namespace inferscale
