// What the parts of the application share. Only app/ includes this.
#ifndef INFERSCALE_APP_APP_IMPL_H_
#define INFERSCALE_APP_APP_IMPL_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "app/app.h"
#include "app/encode_quotas.h"
#include "app/models.h"
#include "app/record_codec.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "memory/extraction.h"

namespace inferscale {

// A prompt on its way to the engine: the composition, its pins, and what a user is told of it.
struct Prepared {
  MemoryMode mode = MemoryMode::kNone;  // what became of kAuto
  Prompt prompt;
  std::vector<UsedFact> facts;
  AskTimes times;
};

// The tokens a conversation holds already, before which nothing may change.
struct HeldTurns {
  std::vector<Token> tokens;
  std::unordered_map<int64_t, uint32_t> versions;  // of facts in it, by row
  bool ended = false;                              // the last token ends the model's turn
  std::vector<PromptSpan> spans;  // of the tokens, if the engine stores KV itself: the plan by
                                  // which it finds them in its own cache
};

class AppImpl final : public App {
 public:
  AppImpl(AppOptions options, Models models);
  ~AppImpl() override;
  Status Open();

  const AppOptions& options() const override { return options_; }
  FactStore& facts() override { return *facts_; }
  Result<std::vector<AddResult>> Add(std::span<const Fact> facts) override;
  Result<std::vector<AddResult>> Restore(std::span<const FactWithHistory> facts) override;
  Result<Fact> Update(const std::string& tenant, const std::string& id,
                      const FactUpdate& update) override;
  Result<Erased> Delete(const std::string& tenant, std::span<const std::string> ids) override;
  Result<Erased> DeleteScope(const Scope& scope) override;
  Result<std::vector<SearchResult>> Search(const Scope& scope, const std::string& text,
                                           size_t limit, const Filter* filter) override;
  Result<std::vector<SearchResult>> SearchUsers(const Scope& scope,
                                                std::span<const std::string> users,
                                                const std::string& text, size_t limit,
                                                const Filter* filter) override;

  AuditLog* audit() override { return audit_.get(); }
  Embedder& embedder() override { return *embedder_; }

  Engine& engine() override { return *engine_; }
  Result<Answer> Ask(const AskRequest& request, const OnPiece& on_piece) override;
  std::unique_ptr<Conversation> StartConversation() override;
  Result<std::vector<InferredFact>> AddInferred(std::span<const Fact> messages) override;
  Result<std::optional<GateVerdict>> Verdict() override;
  Hash128 VerdictId() const override;
  Result<Prompt> ComposePrompt(const AskRequest& request, std::vector<UsedFact>* used,
                               AskTimes* times) override;

  Result<EncodeProgress> EncodePending(const OnProgress& on_progress,
                                       const std::stop_token& stop) override;
  void StartBackgroundEncoding() override;
  Result<uint64_t> PendingEpisodes() override;

  Status CollectGarbage() override;
  Result<CompactResult> Compact(bool drop_unused) override;
  Result<ForgetReport> Forget(const Scope& scope, bool verify) override;
  Result<bool> Verify() override;
  Result<AppStats> Stats() override;
  Result<TenantUse> UseOf(const std::string& tenant) override;
  Result<std::vector<TenantUse>> UseOfLimited(size_t most) override;

  // ---- answer.cc ---------------------------------------------------------------------------
  // `held` is null for a question by itself. A later turn's facts are those not held yet.
  Result<Prepared> Prepare(const AskRequest& request, const HeldTurns* held);
  // False if a fact that the conversation has read is changed or gone: it must not go on from it.
  Result<bool> StillHolds(const HeldTurns& held);
  // What stands before a later turn's facts: the tokens held, the beginning of a block of facts,
  // and line ends up to where the engine's own cache can end.
  Result<std::vector<Token>> NextOpening(const HeldTurns& held) const;
  // Has the engine compute the next turn's opening, so that the facts behind it can be injected.
  void Warm(const HeldTurns& held, uint64_t session, const std::string& tenant);
  // Runs a prepared prompt; `generated` gets the ids.
  Result<Answer> Generate(Prepared prepared, const AskRequest& request, uint64_t session,
                          const Stopwatch& since_question, const OnPiece& on_piece,
                          std::vector<Token>* generated);

 private:
  struct Recall;  // what retrieval found for a question

  // ---- app.cc ------------------------------------------------------------------------------
  Status OpenSearch();
  Status OpenAnswers();
  Status EnsureHeaderKv();
  Status StoreHeaderKv();
  // KvStore's, of the records of all ranks: those that are missing in part, or of every number of
  // ranks that this folder was used with.
  Result<std::vector<size_t>> MissingKv(std::span<const Hash128> keys);
  Result<std::vector<Hash128>> KeysOfAnyRank(std::span<const Hash128> keys);
  Status EraseKv(std::span<const Hash128> keys);
  // The KV that nothing refers to any more; how many records.
  Result<size_t> EraseGarbage();
  Erased EraseKvOfTheGone(size_t facts);
  // The settings that are not in use and their KV.
  Result<std::vector<UnusedKv>> FindUnused(bool drop);
  Status SweepOrphans();
  // The one encoder among the processes that share the directory. kConflict if another stays it.
  Result<std::unique_ptr<FileLock>> WaitForEncoder();
  Result<std::unique_ptr<FileLock>> TryEncoder();
  bool EncoderIsAwaited();  // by whoever is behind the one that has it
  // What was derived from a user's facts, in memory.
  void ForgetDerived(const std::string& tenant, const std::string& user);
  void WakeEncoder();
  Status NeedAtLeast(Need need, std::string_view what) const;
  Status PutMissingVectors();

  // ---- answer.cc ---------------------------------------------------------------------------
  Result<Recall> Retrieve(const AskRequest& request, const ComposeOptions& options,
                          const HeldTurns* held, AskTimes& times);
  // What kAuto is for a prompt of so many facts.
  Result<MemoryMode> ModeFor(const AskRequest& request, size_t facts, bool first_turn);
  // Rows that must not come in: what the conversation holds and what the filter keeps out.
  static std::unordered_set<int64_t> Excluded(const AskRequest& request, const Recall& recall,
                                              const HeldTurns* held);
  Result<std::vector<Token>> TailTokens(const AskRequest& request, const HeldTurns* held,
                                        bool with_facts) const;
  // A span of a composition as the engine takes it, its tokens compared with the record's: pinned
  // in `pins`, or only looked for in the catalog if the engine takes records by their keys.
  struct TakenSpan {
    PromptSpan span;
    Tier tier = Tier::kHost;
  };
  using Pins = std::unordered_map<Hash128, std::shared_ptr<const PinnedKv>>;
  Result<TakenSpan> TakeSpan(const KvSpan& span, const Composition& composition, Pins& pins);
  Result<TakenSpan> NameSpan(const KvSpan& span, const Composition& composition,
                             const std::string& tenant);
  // Takes all spans. False: some KV was unusable, is forgotten, and the prompt has to be composed
  // again.
  Result<bool> Pin(const Composition& composition, const std::string& tenant, Prepared& prepared,
                   std::unordered_map<Hash128, Tier>& tiers);

  // ---- infer.cc ----------------------------------------------------------------------------
  // What the new facts might correct.
  Result<std::vector<Fact>> NearFacts(std::span<const Fact> messages);
  Result<std::vector<ExtractedFact>> Extract(std::span<const Fact> messages,
                                             std::span<const Fact> known);
  Result<InferredFact> Keep(const ExtractedFact& extracted, const Fact& like,
                            std::span<const Fact> known);

  // ---- encode.cc ---------------------------------------------------------------------------
  struct EpisodePlan;
  struct EncodeGroup;
  struct EncodeWork;
  // Encodes pending episodes of one user and moves query.after behind the first. False if there are
  // none. kCancelled if told to stop meanwhile: what is not stored stays pending.
  Result<bool> EncodeBatch(PendingQuery& query, EncodePace pace, const std::stop_token& stop,
                           EncodeProgress& progress);
  // Of the user of the first that `query` says: what stands before them is computed once. None of
  // tenants that the pace makes wait.
  Result<std::vector<int64_t>> NextEpisodes(PendingQuery query, EncodePace pace);
  Result<EncodeWork> PlanBatch(std::span<const int64_t> ids, EncodeProgress& progress);
  Result<EpisodePlan> PlanEpisode(const Episode& episode);
  Result<std::vector<Token>> Behind(const std::vector<Fact>& window, size_t room,
                                    EncodedEpisode& encoded);
  // Encodes, and stores the plans that are complete with it.
  Status RunGroup(const EncodeGroup& group, std::span<EpisodePlan> plans,
                  const std::stop_token& stop, EncodeProgress& progress);
  Status PutKv(std::span<const KvPut> puts);
  // The same for what the engine has stored itself: waits until the catalog has the records.
  // Indices of those that don't come; kTransient if none does.
  Result<std::vector<size_t>> AwaitKv(std::span<const Hash128> keys);
  // Which of the plans' records are stored now.
  Result<std::vector<bool>> StoreRecords(std::span<EpisodePlan* const> plans,
                                         EncodeProgress& progress);
  Status StorePlans(std::span<EpisodePlan* const> plans, EncodeProgress& progress);
  // Notes that it can't be encoded.
  Status GiveUp(EpisodePlan& plan, const std::string& reason, EncodeProgress& progress);
  void EncodeInBackground(const std::stop_token& stop);
  // Lets other processes compact what this one appends to, also in the midst of a batch.
  void SealInBackground(const std::stop_token& stop);
  Result<TenantUse> UseUnder(const TenantQuota& quota, const std::string& tenant);
  Result<std::vector<int64_t>> Neighbours(const Episode& episode, size_t count);

  const AppOptions options_;
  SystemClock clock_;
  std::unique_ptr<FactStore> facts_;
  std::unique_ptr<KvStore> kv_;
  std::unique_ptr<AuditLog> audit_;  // null if there is none
  std::unique_ptr<Embedder> embedder_;
  std::unique_ptr<SearchIndex> index_;
  std::optional<RecordCodec> codec_;  // outlives the engine, which reads its scales
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<FactTokens> fact_tokens_;
  std::unique_ptr<WindowChooser> windows_;

  std::vector<Token> header_;
  Hash128 header_key_;
  std::atomic<bool> header_has_kv_{false};
  Hash128 encoding_;
  std::atomic<uint64_t> stale_kv_{0};
  std::atomic<uint64_t> next_session_{1};

  std::atomic<int> compactions_{0};  // that wait or run: the background encoder lets them first
  std::unique_ptr<EncodeQuotas> quotas_;  // used under encode_mutex_
  Mutex encode_mutex_;                    // one encoder in this process
  std::atomic<int64_t> last_add_ms_{0};
  std::mutex wake_mutex_;
  std::condition_variable_any wake_;  // facts have come
  std::jthread encoder_;
  std::jthread sealer_;
};

}  // namespace inferscale

#endif  // INFERSCALE_APP_APP_IMPL_H_
