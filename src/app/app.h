// The application: memory, store, embedder and engine bound together. Commands and servers talk to
// this. The two walks of ARCHITECTURE.md are Add + EncodePending, and Ask.
#ifndef INFERSCALE_APP_APP_H_
#define INFERSCALE_APP_APP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "app/audit_log.h"
#include "app/erasure.h"
#include "base/result.h"
#include "embed/embedder.h"
#include "engine/choices.h"
#include "engine/engine.h"
#include "memory/compose.h"
#include "memory/fact_store.h"
#include "memory/filter.h"
#include "memory/search_index.h"
#include "memory/window.h"
#include "store/kv_store.h"

namespace inferscale {

// What KV is stored as: the engine's own numbers, or half their bytes (docs/codecs.md).
enum class KvCodec : uint8_t { kNone, kInt8, kFp8 };
std::string_view KvCodecName(KvCodec codec);  // "none", "int8", "fp8"
Result<KvCodec> ParseKvCodec(std::string_view name);

// Who computes: libllama in this process, or vLLM servers.
enum class EngineKind : uint8_t { kLlama, kVllm };

struct AppOptions {
  std::string data_dir;

  EngineKind engine = EngineKind::kLlama;
  std::string model;              // GGUF of the language model, or
  std::vector<std::string> urls;  // of vLLM servers of one model, with
  std::string engine_key;         // their API key

  std::string embed_model;  // GGUF of the embedding model, or
  std::string embed_url;    // the base URL of an OpenAI-compatible server, with
  std::string embed_name;   // its model's name
  std::string embed_key;    // and key

  int threads = 0;              // 0: as many as there are cores
  uint32_t slots = 2;           // generations at a time
  bool heal = false;            // LlamaEngineOptions::heal; kInvalid with vLLM
  uint32_t queue_seconds = 60;  // LlamaEngineOptions::queue_wait; vLLM has a queue of its own
  uint32_t context_tokens = 0;  // per slot; 0: the model's, at most 8192

  uint64_t arena_bytes = uint64_t{1} << 30;  // host memory for KV
  uint64_t disk_bytes = 0;                   // of KV on disk; 0: no limit
  size_t index_bytes = size_t{256} << 20;    // memory for search indexes
  KvCodec kv_codec = KvCodec::kNone;
  bool audit = false;  // open the audit log even if there is none yet

  std::string system =
      "You are a helpful assistant. Answer the question briefly, using the memories below.\n"
      "Memories:";
  WindowStrategy window;
  uint32_t episode_facts = 3;
  ComposeOptions compose;
};

// What has to be opened: adding needs no language model, listing no model at all.
enum class Need : uint8_t { kFacts, kSearch, kAnswer };

// How memory reaches the model: as KV where there is KV; as text, the same composition computed
// whole; not at all; or as is better: text if the quality gate failed KV for this model and these
// settings, or a prompt has too few facts (AskRequest::auto_facts), else KV.
enum class MemoryMode : uint8_t { kKv, kText, kNone, kAuto };
std::string_view MemoryModeName(MemoryMode mode);  // "kv", "text", "none", "auto"
Result<MemoryMode> ParseMemoryMode(std::string_view name);

// An earlier turn of the dialogue.
struct PastTurn {
  std::string user;
  std::string assistant;
};

inline constexpr uint32_t kAutoFacts = 15;

struct AskRequest {
  Scope scope;
  std::string question;
  // What was said before, by a caller that keeps the dialogue itself: stands between the facts and
  // the question, is computed with it, and is not searched for. A Conversation reads it only where
  // it begins, or begins anew.
  std::vector<PastTurn> before{};
  MemoryMode mode = MemoryMode::kKv;
  // Mode auto injects no KV into a prompt of fewer facts: few are quick to compute, and their KV
  // comes less near to it (docs/quality.md). None: as the quality gate has found, kAutoFacts
  // before.
  std::optional<uint32_t> auto_facts{};
  ComposeOptions compose;
  Sampling sampling;
  const Filter* filter = nullptr;
  std::string traceparent{};  // GenerateRequest::traceparent
  uint32_t choices = 1;       // answers to the question, each with a seed of its own; at least 1
  std::stop_token stop{};     // once it is requested, the answer soon ends with kCancelled
};

std::string_view TierName(Tier tier);  // "memory", "disk", "device", "engine"

struct UsedFact {
  Fact fact;
  float score = 0.0F;
  uint32_t tokens = 0;
  bool injected = false;
  Tier tier = Tier::kHost;  // where its KV was, if injected
};

// Milliseconds of each step, in order; together they are first_token_ms.
struct AskTimes {
  double embed_ms = 0;
  double search_ms = 0;
  double compose_ms = 0;  // choosing, tokenising, laying out
  double load_ms = 0;     // KV into the arena, pins
  double inject_ms = 0;
  double prefill_ms = 0;
  double first_token_ms = 0;  // from the question to the first token
  double total_ms = 0;
};

struct Answer : Choice {
  std::vector<Choice> others;           // that were asked for besides
  MemoryMode mode = MemoryMode::kNone;  // never kAuto
  bool restarted = false;  // a conversation began anew with this answer: its context was full, or
                           // a fact that it had read was changed or deleted
  std::vector<UsedFact> facts;  // in the order of the prompt
  AskTimes times;
  GenerateStats stats;
};

struct EncodeProgress {
  uint64_t episodes_done = 0;
  uint64_t episodes_total = 0;
  uint64_t facts_done = 0;
  uint64_t stored_tokens = 0;
  uint64_t computed_tokens = 0;
  uint64_t failed = 0;
  uint64_t clamped = 0;  // elements of keys that the codec could not hold
  double ms = 0;
};
// Called after every batch; false stops.
using OnProgress = std::function<bool(const EncodeProgress&)>;

struct SearchResult {
  Fact fact;
  SearchHit hit;
};

struct AppStats {
  FactStoreStats facts;
  std::optional<KvStoreStats> kv;
  std::optional<KvShape> record_shape;  // of records as they are stored, if there is a model
  uint64_t stale_kv = 0;                // records that did not fit their facts and were not used
};

// What a tenant has, and may have.
struct TenantUse {
  std::string tenant;
  TenantQuota quota;
  uint64_t facts = 0;
  uint64_t kv_bytes = 0;
};

// KV that was made under a model, window or system text that is not in use.
struct UnusedKv {
  std::string label;
  int64_t used_ms = 0;  // last, Unix ms; 0: not known
  uint64_t records = 0;
  uint64_t bytes = 0;
};
struct CompactResult {
  CompactReport files;
  std::vector<UnusedKv> unused;  // that is kept, or was dropped if that was asked for
};

// A question and its answer as two facts; one, if the answer says nothing.
std::vector<Fact> TurnFacts(const Scope& scope, const std::string& question,
                            const std::string& answer, int64_t when_ms);

// An append-only conversation: what was read once is never read again, and no fact comes twice.
// Used by one thread; must not outlive its App. It is of one tenant and user: kInvalid for
// another's question.
class Conversation {
 public:
  virtual ~Conversation() = default;
  virtual Result<Answer> Ask(const AskRequest& request, const OnPiece& on_piece) = 0;
  virtual uint32_t tokens() const = 0;  // held in the context
};

// What became of a fact that the model drew from messages.
enum class InferEvent : uint8_t { kAdded, kUpdated, kDuplicate };
struct InferredFact {
  Fact fact;
  InferEvent event = InferEvent::kAdded;
  std::string previous{};  // the text that it replaced, if kUpdated
};

// What a deletion took away.
struct Erased {
  size_t facts = 0;       // their text, history and vectors
  size_t kv_records = 0;  // of their episodes, and of those that were encoded behind them
  bool kv_left = false;   // some KV could not be erased yet; it is used no more, and tried again
};

// What Forget did, and the proof if that was asked for.
struct ForgetReport {
  Erased erased;
  CompactResult compacted;
  std::optional<ErasureProof> proof;
};

class App {
 public:
  static Result<std::unique_ptr<App>> Open(AppOptions options, Need need);
  virtual ~App() = default;  // stops background encoding; what is left continues at the next start

  virtual const AppOptions& options() const = 0;

  // ---- facts (Need::kFacts, but for those that need a vector: Need::kSearch) ------------------
  virtual FactStore& facts() = 0;  // for reading
  // Durable and searchable on return; KV follows (EncodePending or the background). kInvalid if a
  // fact has no user, agent or run.
  virtual Result<std::vector<AddResult>> Add(std::span<const Fact> facts) = 0;
  // Of an export: durable and searchable on return, in batches; those that are there already stay
  // as they are (FactStore::Restore).
  virtual Result<std::vector<AddResult>> Restore(std::span<const FactWithHistory> facts) = 0;
  virtual Result<Fact> Update(const std::string& tenant, const std::string& id,
                              const FactUpdate& update) = 0;
  virtual Result<Erased> Delete(const std::string& tenant, std::span<const std::string> ids) = 0;
  virtual Result<Erased> DeleteScope(const Scope& scope) = 0;
  // Of the scope's user; best first.
  virtual Result<std::vector<SearchResult>> Search(const Scope& scope, const std::string& text,
                                                   size_t limit, const Filter* filter) = 0;
  // Of these users ("": the facts of no user) instead of the scope's. As each has a ranking of
  // their own, the results of several are in the order of their cosines.
  virtual Result<std::vector<SearchResult>> SearchUsers(const Scope& scope,
                                                        std::span<const std::string> users,
                                                        const std::string& text, size_t limit,
                                                        const Filter* filter) = 0;

  // Null if there is none. What is deleted by scope is deleted there too, and compacted with the
  // rest.
  virtual AuditLog* audit() = 0;

  virtual Embedder& embedder() = 0;  // thread-safe

  // ---- answers (Need::kAnswer) -----------------------------------------------------------------
  virtual Engine& engine() = 0;
  virtual Result<Answer> Ask(const AskRequest& request, const OnPiece& on_piece) = 0;
  virtual std::unique_ptr<Conversation> StartConversation() = 0;

  // Adds what the model draws from messages of one scope instead of the messages themselves
  // (memory/extraction.h). A fact that corrects one that is near enough to be found becomes that
  // fact's next version. Messages that don't fit one prompt are read in turn, each with what was
  // added before it; after an error what was added stays, and adding it again changes nothing.
  // kInvalid if the messages are of several scopes, kTransient if the model's answer is no use.
  virtual Result<std::vector<InferredFact>> AddInferred(std::span<const Fact> messages) = 0;

  // What the quality gate has measured for this model and these settings: nothing before the first
  // `inferscale verify`, which is seen at once, whichever process ran it.
  virtual Result<std::optional<GateVerdict>> Verdict() = 0;
  // What a verdict is kept under: names the model and all settings that it depends on, and is the
  // same for all data directories.
  virtual Hash128 VerdictId() const = 0;

  // The composition that Ask would use, with its KV pinned; for measuring.
  virtual Result<Prompt> ComposePrompt(const AskRequest& request, std::vector<UsedFact>* used,
                                       AskTimes* times) = 0;

  // Encodes what is pending until nothing is left, or `on_progress` says so. `stop` ends it in the
  // midst of a batch; what that batch had not stored yet stays pending. One process at a time:
  // waits some seconds for another one, then kConflict.
  virtual Result<EncodeProgress> EncodePending(const OnProgress& on_progress,
                                               const std::stop_token& stop) = 0;
  virtual void StartBackgroundEncoding() = 0;
  virtual Result<uint64_t> PendingEpisodes() = 0;

  // ---- upkeep ---------------------------------------------------------------------------------
  // Erases the KV of what was deleted or changed; what Delete and Update could not do themselves.
  virtual Status CollectGarbage() = 0;
  // CollectGarbage, sweep of unreferenced records, and a full compaction of both stores. Waits
  // some seconds for another process that encodes, then kConflict. What is in use is what this
  // application was opened with, or without a model the setting that was put to use last.
  virtual Result<CompactResult> Compact(bool drop_unused) = 0;
  // DeleteScope, then Compact, so that the bytes are gone; with `verify` every file of the data
  // directory is then read for what the facts may have left.
  virtual Result<ForgetReport> Forget(const Scope& scope, bool verify) = 0;
  // Reads both databases whole: minutes if they are large. kCorrupt if that of the facts is
  // damaged; false if the catalog of KV was, which is empty now and fills again.
  virtual Result<bool> Verify() = 0;
  virtual Result<AppStats> Stats() = 0;
  virtual Result<TenantUse> UseOf(const std::string& tenant) = 0;
  // Of the tenants that have quotas, by name, the first `most`.
  virtual Result<std::vector<TenantUse>> UseOfLimited(size_t most) = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_APP_APP_H_
