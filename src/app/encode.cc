// Writing, second half: facts get their KV. There is no queue to lose: an episode without complete
// KV under the model's fingerprint is pending, whatever happened before.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "app/app_impl.h"
#include "ops/mean/mean.h"

namespace inferscale {
namespace {

constexpr size_t kBatchEpisodes = 24;      // in memory at a time: what bounds the queue
constexpr size_t kBackgroundEpisodes = 8;  // fewer, so that an answer's own needs are met soon
constexpr int64_t kQuietMs = 2000;         // after its last fact, before an open episode is encoded
// Without news from this process, how often to look for what others have added.
constexpr std::chrono::milliseconds kFirstPoll{500};
constexpr std::chrono::milliseconds kLastPoll{16000};
constexpr std::chrono::milliseconds kLetPass{10};
// For records that an engine stores itself.
constexpr std::chrono::seconds kStorePatience{10};
constexpr std::chrono::milliseconds kStorePause{5};

}  // namespace

// An episode on its way to its KV.
struct AppImpl::EpisodePlan {
  EncodedEpisode encoded;
  Scope scope;
  std::vector<Token> tokens;
  std::vector<std::vector<Token>> prefixes;  // the header and a window, for each window
  uint32_t computed = 0;                     // windows behind which it was
  EncodedRecord mean;                        // of what they gave, if the engine gives records
  bool failed = false;
};

// Episodes of one tenant behind one window. `items[i]` holds the tokens of one or (session windows)
// several consecutive episodes, captured one by one.
struct AppImpl::EncodeGroup {
  std::string tenant;
  std::vector<Token> prefix;
  std::vector<EncodeItem> items{};
  struct Capture {
    size_t plan = 0;  // of the batch
    size_t item = 0;
    size_t range = 0;  // of the item's captures
  };
  std::vector<Capture> captures{};

  // Takes in a plan that is to be encoded behind `behind`: as an item of its own if that is this
  // group's prefix; as the rest of the last item if that is prefix and item together, so that a
  // session is one causal pass. False if neither fits.
  bool TakeIn(const std::vector<Token>& behind, const EpisodePlan& plan, size_t number,
              size_t limit);
};

struct AppImpl::EncodeWork {
  std::vector<EpisodePlan> plans;
  std::vector<EncodeGroup> groups;
};

bool AppImpl::EncodeGroup::TakeIn(const std::vector<Token>& behind, const EpisodePlan& plan,
                                  size_t number, size_t limit) {
  if (tenant != plan.scope.tenant) return false;
  const auto count = static_cast<uint32_t>(plan.tokens.size());
  const Hash128& key = plan.encoded.kv.key;
  if (prefix == behind) {
    captures.push_back({number, items.size(), 0});
    items.push_back({plan.tokens, {{0, count, key}}});
    return true;
  }
  EncodeItem& last = items.back();
  const auto end = static_cast<ptrdiff_t>(prefix.size());
  const bool follows = behind.size() == prefix.size() + last.tokens.size() &&
                       behind.size() + count <= limit &&
                       std::equal(prefix.begin(), prefix.end(), behind.begin()) &&
                       std::equal(last.tokens.begin(), last.tokens.end(), behind.begin() + end);
  if (!follows) return false;
  captures.push_back({number, items.size() - 1, last.captures.size()});
  last.captures.push_back({static_cast<uint32_t>(last.tokens.size()), count, key});
  last.tokens.insert(last.tokens.end(), plan.tokens.begin(), plan.tokens.end());
  return true;
}

Result<AppImpl::EpisodePlan> AppImpl::PlanEpisode(const Episode& episode) {
  EpisodePlan plan;
  plan.scope = episode.scope;
  EncodedEpisode& encoded = plan.encoded;
  encoded.kv.episode = episode.id;
  encoded.kv.encoding = encoding_;
  encoded.kv.covered = static_cast<uint32_t>(episode.facts.size());
  fact_tokens_->Expect(episode.facts);
  for (const Fact& fact : episode.facts) {
    INFERSCALE_ASSIGN(const auto tokens, fact_tokens_->Get(fact));
    encoded.kv.fact_tokens.push_back(static_cast<uint32_t>(tokens->size()));
    encoded.fact_ids.push_back(fact.id);
    encoded.fact_versions.push_back(fact.version);
    plan.tokens.insert(plan.tokens.end(), tokens->begin(), tokens->end());
  }
  const size_t limit = engine_->info().encode_tokens;
  if (header_.size() + plan.tokens.size() > limit) {
    return Fail(Code::kUnsupported, "an episode of {} tokens does not fit into the encoder's {}",
                plan.tokens.size(), limit);
  }
  // Everything that the KV depends on. The episode's number keeps two users' equal words apart.
  Hasher key;
  key.Add("episode").Add(plan.scope.tenant).Add(static_cast<uint64_t>(episode.id));
  key.Add(codec_->fingerprint());
  INFERSCALE_ASSIGN(const auto windows, windows_->Choose(episode));
  for (const std::vector<Fact>& window : windows) {
    INFERSCALE_ASSIGN(auto prefix,
                      Behind(window, limit - header_.size() - plan.tokens.size(), encoded));
    key.AddBytes(std::as_bytes(std::span(prefix)));
    plan.prefixes.push_back(std::move(prefix));
  }
  encoded.kv.key = key.AddBytes(std::as_bytes(std::span(plan.tokens))).Digest();
  return plan;
}

// The header and of the window the nearest facts, as many as there is room for; they are noted.
Result<std::vector<Token>> AppImpl::Behind(const std::vector<Fact>& window, size_t room,
                                           EncodedEpisode& encoded) {
  fact_tokens_->Expect(window);
  std::vector<std::shared_ptr<const std::vector<Token>>> kept;
  for (auto fact = window.rbegin(); fact != window.rend(); ++fact) {
    INFERSCALE_ASSIGN(auto tokens, fact_tokens_->Get(*fact));
    if (tokens->size() > room) break;
    room -= tokens->size();
    kept.push_back(std::move(tokens));
    if (std::ranges::count(encoded.window_ids, fact->id) > 0) continue;
    encoded.window_ids.push_back(fact->id);
    encoded.window_versions.push_back(fact->version);
  }
  std::vector<Token> prefix = header_;
  for (auto tokens = kept.rbegin(); tokens != kept.rend(); ++tokens) {
    prefix.insert(prefix.end(), (*tokens)->begin(), (*tokens)->end());
  }
  return prefix;
}

Result<AppImpl::EncodeWork> AppImpl::PlanBatch(std::span<const int64_t> ids,
                                               EncodeProgress& progress) {
  INFERSCALE_ASSIGN(const std::vector<Episode> episodes, facts_->GetEpisodes(ids));
  EncodeWork work;
  for (const Episode& episode : episodes) {
    auto plan = PlanEpisode(episode);
    if (plan) {
      work.plans.push_back(std::move(*plan));
      continue;
    }
    switch (plan.error().code) {
      case Code::kTransient:
      case Code::kCancelled:
        return tl::unexpected(plan.error());
      case Code::kConflict:
        continue;  // its window changed meanwhile; it stays pending
      default:
        break;
    }
    ++progress.failed;
    INFERSCALE_TRY(
        facts_->PutEncodeFailure(codec_->fingerprint(), episode.id, plan.error().message));
  }
  const size_t limit = engine_->info().encode_tokens;
  for (size_t i = 0; i < work.plans.size(); ++i) {
    const EpisodePlan& plan = work.plans[i];
    for (const std::vector<Token>& prefix : plan.prefixes) {
      const bool taken =
          std::any_of(work.groups.begin(), work.groups.end(),
                      [&](EncodeGroup& group) { return group.TakeIn(prefix, plan, i, limit); });
      if (taken) continue;
      work.groups.push_back({.tenant = plan.scope.tenant, .prefix = prefix});
      work.groups.back().TakeIn(prefix, plan, i, limit);
    }
  }
  return work;
}

// A quota counts what is dead on the disk too: make room once before giving up.
Status AppImpl::PutKv(std::span<const KvPut> puts) {
  Status put = kv_->Put(puts);
  if (put || put.error().code != Code::kExhausted) return put;
  if (auto compacted = kv_->Compact(/*full=*/false); !compacted) return put;
  return kv_->Put(puts);
}

Result<std::vector<size_t>> AppImpl::AwaitKv(std::span<const Hash128> keys) {
  const auto until = std::chrono::steady_clock::now() + kStorePatience;
  while (true) {
    INFERSCALE_ASSIGN(std::vector<size_t> missing, MissingKv(keys));
    const bool late = std::chrono::steady_clock::now() > until;
    if (late && missing.size() == keys.size()) {
      return Fail(Code::kTransient,
                  "what the engine has encoded does not come into {}/kv: it stores KV in {}",
                  options_.data_dir, engine_->info().kv_dir);
    }
    if (late || missing.empty()) return missing;
    std::this_thread::sleep_for(kStorePause);
  }
}

Result<std::vector<bool>> AppImpl::StoreRecords(std::span<EpisodePlan* const> plans,
                                                EncodeProgress& progress) {
  std::vector<bool> stored(plans.size(), true);
  if (engine_->info().stores_kv) {
    std::vector<Hash128> keys;
    for (const EpisodePlan* plan : plans) keys.push_back(plan->encoded.kv.key);
    INFERSCALE_ASSIGN(const std::vector<size_t> missing, AwaitKv(keys));
    for (const size_t i : missing) stored[i] = false;
    return stored;
  }
  std::vector<std::vector<std::byte>> payloads;
  std::vector<KvPut> puts;
  for (EpisodePlan* plan : plans) {
    INFERSCALE_ASSIGN(std::vector<std::byte> payload,
                      codec_->Pack(std::move(plan->mean), progress.clamped));
    payloads.push_back(std::move(payload));
    puts.push_back({{plan->encoded.kv.key, plan->scope.tenant, codec_->fingerprint(),
                     codec_->shape(), plan->tokens},
                    payloads.back()});
  }
  INFERSCALE_TRY(PutKv(puts));
  return stored;
}

Status AppImpl::StorePlans(std::span<EpisodePlan* const> plans, EncodeProgress& progress) {
  INFERSCALE_ASSIGN(const std::vector<bool> stored, StoreRecords(plans, progress));
  std::vector<Hash128> orphans;
  Status first_error;
  for (size_t i = 0; i < plans.size(); ++i) {
    EpisodePlan& plan = *plans[i];
    if (!stored[i]) {
      INFERSCALE_TRY(GiveUp(plan, "the engine did not store the record", progress));
      continue;
    }
    Status put = facts_->PutKv(codec_->fingerprint(), plan.encoded);
    if (put) {
      ++progress.episodes_done;
      progress.facts_done += plan.encoded.fact_ids.size();
      progress.stored_tokens += plan.tokens.size();
      continue;
    }
    orphans.push_back(plan.encoded.kv.key);
    // A conflict: it changed meanwhile, and stays pending.
    if (put.error().code != Code::kConflict && first_error) first_error = put;
  }
  INFERSCALE_TRY(EraseKv(orphans));
  return first_error;
}

Status AppImpl::GiveUp(EpisodePlan& plan, const std::string& reason, EncodeProgress& progress) {
  if (std::exchange(plan.failed, true)) return {};
  ++progress.failed;
  return facts_->PutEncodeFailure(codec_->fingerprint(), plan.encoded.kv.episode, reason);
}

Status AppImpl::RunGroup(const EncodeGroup& group, std::span<EpisodePlan> plans,
                         const std::stop_token& stop, EncodeProgress& progress) {
  auto result = engine_->Encode({group.prefix, group.items, stop, group.tenant});
  if (!result) {
    const Code code = result.error().code;
    // A server that is away is no episode's fault.
    const bool away = engine_->info().stores_kv && code == Code::kTransient;
    if (code == Code::kCancelled || away) return tl::unexpected(result.error());
    for (const EncodeGroup::Capture& capture : group.captures) {
      INFERSCALE_TRY(GiveUp(plans[capture.plan], result.error().message, progress));
    }
    return {};
  }
  progress.computed_tokens += result->computed_tokens;
  quotas_->Spend(group.tenant, result->computed_tokens);
  std::vector<EpisodePlan*> complete;
  for (const EncodeGroup::Capture& capture : group.captures) {
    EpisodePlan& plan = plans[capture.plan];
    if (plan.failed) continue;
    ++plan.computed;
    if (!engine_->info().stores_kv) {
      EncodedRecord& record = result->records[capture.item][capture.range];
      if (plan.computed == 1) {
        plan.mean = std::move(record);
      } else {
        INFERSCALE_TRY(
            AddToMean(engine_->info().shape.dtype, record.data, plan.computed, plan.mean.data));
      }
    }
    if (plan.computed == plan.prefixes.size()) complete.push_back(&plan);
  }
  return StorePlans(complete, progress);
}

Result<std::vector<int64_t>> AppImpl::NextEpisodes(PendingQuery query, EncodePace pace) {
  INFERSCALE_ASSIGN(const std::vector<std::string> waiting, quotas_->Waiting(pace));
  query.without = waiting;
  const auto pending = [&] {
    return facts_->PendingEpisodes(codec_->fingerprint(), encoding_, query);
  };
  const size_t limit = std::exchange(query.limit, 1);
  INFERSCALE_ASSIGN(std::vector<int64_t> first, pending());
  INFERSCALE_ASSIGN(const std::vector<Episode> episodes, facts_->GetEpisodes(first));
  if (episodes.empty()) return first;
  query.of = &episodes.front().scope;
  query.limit = limit;
  INFERSCALE_ASSIGN(std::vector<int64_t> ids, pending());
  return ids.empty() ? first : ids;  // deleted meanwhile
}

Result<bool> AppImpl::EncodeBatch(PendingQuery& query, EncodePace pace, const std::stop_token& stop,
                                  EncodeProgress& progress) {
  INFERSCALE_TRY(facts_->DeleteExpired());
  INFERSCALE_TRY(CollectGarbage());
  INFERSCALE_ASSIGN(const std::vector<int64_t> ids, NextEpisodes(query, pace));
  if (ids.empty()) return false;
  INFERSCALE_ASSIGN(EncodeWork work, PlanBatch(ids, progress));
  const uint64_t done_before = progress.episodes_done;
  for (const EncodeGroup& group : work.groups) {
    if (stop.stop_requested()) return Fail(Code::kCancelled, "encoding was told to stop");
    if (progress.episodes_done > done_before && EncoderIsAwaited()) return true;
    INFERSCALE_ASSIGN(const bool waits, quotas_->Waits(group.tenant, pace));
    if (waits) continue;  // what came before it in this batch has filled the quota
    INFERSCALE_TRY(RunGroup(group, work.plans, stop, progress));
  }
  query.after = ids.front();
  INFERSCALE_TRY(CollectGarbage());
  return true;
}

Result<EncodeProgress> AppImpl::EncodePending(const OnProgress& on_progress,
                                              const std::stop_token& stop) {
  INFERSCALE_TRY(NeedAtLeast(Need::kAnswer, "EncodePending"));
  if (!engine_->info().injection) {
    return Fail(Code::kUnsupported, "this model takes no KV: {}",
                engine_->info().self_test.summary);
  }
  EncodeProgress progress;
  const Stopwatch watch;
  INFERSCALE_ASSIGN(progress.episodes_total, PendingEpisodes());
  PendingQuery query{.limit = kBatchEpisodes};
  uint64_t done_before = 0;  // when the present pass over the episodes began
  while (true) {
    progress.ms = watch.Ms();
    if (on_progress && !on_progress(progress)) return progress;
    // Taken anew for every batch, so that others get their turn.
    while (compactions_ > 0) std::this_thread::sleep_for(kLetPass);
    MutexLock lock(encode_mutex_);
    INFERSCALE_ASSIGN(const auto file_lock, WaitForEncoder());
    const auto more = EncodeBatch(query, EncodePace::kAtOnce, stop, progress);
    if (!more && more.error().code == Code::kCancelled && stop.stop_requested()) {
      progress.ms = watch.Ms();
      return progress;
    }
    INFERSCALE_TRY(more);
    if (*more) continue;
    // Another pass for what has come or changed meanwhile, unless this one achieved nothing.
    if (progress.episodes_done == done_before) return progress;
    done_before = progress.episodes_done;
    query.after = 0;
  }
}

Result<uint64_t> AppImpl::PendingEpisodes() {
  INFERSCALE_TRY(NeedAtLeast(Need::kAnswer, "PendingEpisodes"));
  return facts_->CountPending(codec_->fingerprint(), encoding_);
}

void AppImpl::EncodeInBackground(const std::stop_token& stop) {
  std::chrono::milliseconds poll = kFirstPoll;
  int64_t seen_add_ms = 0;
  PendingQuery query{.limit = kBackgroundEpisodes};
  while (!stop.stop_requested()) {
    const int64_t last_add_ms = last_add_ms_;
    // An open episode will grow: while facts come to it, it is not worth the work.
    query.grown_ms = clock_.NowMs() - kQuietMs;
    const bool quiet = last_add_ms <= query.grown_ms;
    bool worked = false;
    bool failed = false;
    if (compactions_ > 0) {
      std::this_thread::sleep_for(kLetPass);
    } else {
      MutexLock lock(encode_mutex_);
      // Another process may be encoding: then there is nothing to do here.
      if (const auto file_lock = TryEncoder(); file_lock) {
        EncodeProgress progress;
        auto done = EncodeBatch(query, EncodePace::kByQuota, stop, progress);
        if (stop.stop_requested()) return;
        failed = !done;
        if (failed) spdlog::warn("encoding in the background: {}", done.error().message);
        worked = done.value_or(false);
      }
    }
    if (worked) continue;
    query.after = 0;
    const bool news = seen_add_ms != last_add_ms;
    poll = failed || (quiet && !news) ? std::min(2 * poll, kLastPoll) : kFirstPoll;
    seen_add_ms = last_add_ms;
    std::unique_lock wait(wake_mutex_);
    wake_.wait_for(wait, stop, poll, [&] { return !failed && last_add_ms_ != last_add_ms; });
  }
}

void AppImpl::SealInBackground(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any ended;
  std::unique_lock lock(mutex);
  while (!ended.wait_for(lock, stop, KvStore::kSealPoll, [&] { return stop.stop_requested(); })) {
    if (const Status sealed = kv_->SealWhereAsked(); !sealed) {
      spdlog::warn("letting go of files of KV: {}", sealed.error().message);
    }
  }
}

void AppImpl::StartBackgroundEncoding() {
  if (encoder_.joinable() || engine_ == nullptr || !engine_->info().injection) return;
  sealer_ = std::jthread([this](const std::stop_token& stop) { SealInBackground(stop); });
  encoder_ = std::jthread([this](const std::stop_token& stop) { EncodeInBackground(stop); });
}

// Similar facts of the same user, for the window of that name.
Result<std::vector<int64_t>> AppImpl::Neighbours(const Episode& episode, size_t count) {
  std::string text;
  std::unordered_set<int64_t> own;
  for (const Fact& fact : episode.facts) {
    text += RenderFact(fact);
    own.insert(fact.row);
  }
  INFERSCALE_ASSIGN(const std::vector<float> vector, embedder_->EmbedOne(text));
  const Scope user{episode.scope.tenant, episode.scope.user, {}, {}};
  INFERSCALE_ASSIGN(const std::vector<SearchHit> hits,
                    index_->Search({user, text, vector, count + own.size(), nullptr}));
  std::vector<int64_t> rows;
  for (const SearchHit& hit : hits) {
    if (!own.contains(hit.row) && rows.size() < count) rows.push_back(hit.row);
  }
  return rows;
}

}  // namespace inferscale
