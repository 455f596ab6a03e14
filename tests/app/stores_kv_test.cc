// The two walks over an engine that stores KV itself: nothing but keys passes through the
// application.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "kv/rank_key.h"
#include "toy_models.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

// A toy whose records go to the store of a folder, as a server's connector puts them there, and
// come from it by the keys of a plan.
class StoringEngine final : public Engine {
 public:
  StoringEngine(const std::shared_ptr<ToyLog>& log, const std::string& dir, uint32_t ranks)
      : toy_("toy v1", log), info_(toy_.info()) {
    info_.kv_ranks = ranks;
    info_.stores_kv = true;
    info_.kv_dir = dir;
    store_ = KvStore::Open(SystemEnv(), clock_, {.dir = dir, .arena_bytes = 16 << 20}).value();
  }

  const ModelInfo& info() const override { return info_; }
  const PromptFormat& format() const override { return toy_.format(); }
  std::string Detokenize(std::span<const Token> tokens) const override {
    return toy_.Detokenize(tokens);
  }
  void EndSession(uint64_t) override {}
  Result<std::vector<std::vector<float>>> Score(const Prompt&, std::span<const Token>,
                                                uint64_t) override {
    return Fail(Code::kUnsupported, "no logits");
  }

  Result<std::unique_ptr<Generation>> Start(GenerateRequest request) override {
    {
      const std::lock_guard lock(mutex);
      started.push_back(request);
    }
    if (request.sampling.max_tokens > 1) last_spans = request.prompt.spans;
    for (PromptSpan& span : request.prompt.spans) {
      EXPECT_EQ(span.record.data, nullptr);
      const KvClaim claim{RankKey(span.key, info_.kv_ranks - 1, info_.kv_ranks), span.record_token,
                          std::span(request.prompt.tokens).subspan(span.first, span.tokens)};
      const KvOwner owner{request.tenant, info_.fingerprint, info_.shape};
      EXPECT_TRUE(store_->Check(owner, std::span(&claim, 1)).front());
      const auto record =
          store_->Get(RankKey(span.key, 0, info_.kv_ranks), info_.fingerprint, info_.shape).value();
      span.record = record->view();
      span.keep_alive = record;
    }
    return toy_.Start(std::move(request));
  }

  Result<EncodeResult> Encode(const EncodeRequest& request) override {
    if (away) return Fail(Code::kTransient, "the server is away");
    INFERSCALE_ASSIGN(EncodeResult result, toy_.Encode(request));
    for (size_t i = 0; i < request.items.size(); ++i) {
      const EncodeItem& item = request.items[i];
      for (size_t j = 0; j < item.captures.size(); ++j) {
        const EncodeItem::Range& range = item.captures[j];
        EXPECT_FALSE(range.key.IsZero());
        encoded.insert(range.key);
        const auto first = item.tokens.begin() + range.first;
        for (const Hash128& key : RankKeys({&range.key, 1}, info_.kv_ranks)) {
          const KvPut put{
              {key, request.tenant, info_.fingerprint, info_.shape, {first, first + range.tokens}},
              result.records[i][j].data};
          INFERSCALE_TRY(store_->Put(std::span(&put, 1)));
        }
      }
    }
    result.records.clear();
    return result;
  }

  // Every record of that rank.
  void EraseRank(uint32_t rank) {
    for (const Hash128& key : encoded) {
      const Hash128 of_rank = RankKey(key, rank, info_.kv_ranks);
      EXPECT_TRUE(store_->Erase({&of_rank, 1}));
    }
  }
  void SetCacheBlock(uint32_t tokens) { info_.cache_block_tokens = tokens; }

  bool away = false;
  std::mutex mutex;
  std::vector<GenerateRequest> started;
  std::set<Hash128> encoded;
  std::vector<PromptSpan> last_spans;

 private:
  SystemClock clock_;
  ToyEngine toy_;
  ModelInfo info_;
  std::unique_ptr<KvStore> store_;
};

class StoresKvTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ =
        fs::temp_directory_path() / ("inferscale-stores-" + std::to_string(getpid()) + "-" +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override {
    app_.reset();
    fs::remove_all(dir_);
  }

  Status Open(KvCodec codec = KvCodec::kNone, uint32_t ranks = 1) {
    AppOptions options;
    options.data_dir = dir_.string();
    options.arena_bytes = 16 << 20;
    options.system = "sys";
    options.episode_facts = 6;
    options.kv_codec = codec;
    auto engine = std::make_unique<StoringEngine>(log_, dir_.string() + "/kv", ranks);
    engine_ = engine.get();
    INFERSCALE_ASSIGN(app_, OpenApp(options, {std::make_unique<ToyEmbedder>(), std::move(engine)}));
    return {};
  }
  std::vector<std::string> Add(int count, const std::string& user = "ana") {
    std::vector<Fact> facts(static_cast<size_t>(count));
    for (size_t i = 0; i < facts.size(); ++i) {
      facts[i].scope.user = user;
      facts[i].text = "topic number" + std::to_string(next_++) + " is remembered";
    }
    std::vector<std::string> ids;
    const auto added = app_->Add(facts);
    for (const AddResult& one : *added) ids.push_back(one.id);
    return ids;
  }
  static AskRequest Question(const std::string& user = "ana") {
    AskRequest request;
    request.scope.user = user;
    request.question = "which topic is remembered";
    request.compose.facts = 6;
    request.compose.plain_last = 0;
    return request;
  }

  void ExpectInjected(bool injected) {
    const Answer answer = app_->Ask(Question(), nullptr).value();
    EXPECT_FALSE(answer.facts.empty());
    for (const UsedFact& used : answer.facts) EXPECT_EQ(used.injected, injected);
  }

  fs::path dir_;
  int next_ = 0;
  std::shared_ptr<ToyLog> log_ = std::make_shared<ToyLog>();
  StoringEngine* engine_ = nullptr;
  std::unique_ptr<App> app_;
};

TEST_F(StoresKvTest, FactsAreInjectedByKey) {
  ASSERT_TRUE(Open());
  Add(12);
  EXPECT_EQ(app_->EncodePending(nullptr, {})->failed, 0U);
  EXPECT_EQ(app_->PendingEpisodes().value(), 0U);
  const Answer kv = app_->Ask(Question(), nullptr).value();
  EXPECT_FALSE(kv.facts.empty());
  for (const UsedFact& used : kv.facts) {
    EXPECT_TRUE(used.injected);
    EXPECT_EQ(used.tier, Tier::kEngine);
  }
  EXPECT_EQ(engine_->last_spans.front().first, 0U);  // the header's
  EXPECT_EQ(log_->wrong_rows, 0U);
  AskRequest text = Question();
  text.mode = MemoryMode::kText;
  EXPECT_EQ(app_->Ask(text, nullptr)->text, kv.text);
}

TEST_F(StoresKvTest, WhatIsDeletedIsErasedFromTheSharedStore) {
  ASSERT_TRUE(Open());
  const auto ids = Add(6);
  ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  EXPECT_EQ(app_->Stats()->kv->records, 2U);  // header and episode
  ASSERT_TRUE(app_->Delete("default", ids));
  EXPECT_EQ(app_->Stats()->kv->records, 1U);
}

TEST_F(StoresKvTest, EveryRankKeepsARecord) {
  ASSERT_TRUE(Open(KvCodec::kNone, 2));
  const auto ids = Add(6);
  ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  EXPECT_EQ(app_->Stats()->kv->records, 4U);  // header and episode, twice
  ExpectInjected(true);
  ASSERT_TRUE(app_->Compact(false));  // sweeps what nothing refers to
  EXPECT_EQ(app_->Stats()->kv->records, 4U);

  // Another number of ranks finds nothing, and makes its own.
  app_.reset();
  ASSERT_TRUE(Open(KvCodec::kNone, 4));
  const Answer computed = app_->Ask(Question(), nullptr).value();
  for (const UsedFact& used : computed.facts) EXPECT_FALSE(used.injected);
  ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  EXPECT_EQ(app_->Ask(Question(), nullptr)->text, computed.text);
  ExpectInjected(true);

  // Who deletes need not know with how many ranks there ever was KV.
  app_.reset();
  AppOptions options;
  options.data_dir = dir_.string();
  app_ = OpenApp(options, {std::make_unique<ToyEmbedder>(), nullptr}).value();
  ASSERT_TRUE(app_->Delete("default", ids));
  EXPECT_EQ(app_->Stats()->kv->records, 2U + 4U);  // headers
  EXPECT_EQ(log_->wrong_rows, 0U);
}

TEST_F(StoresKvTest, ARecordThatOneRankLacksIsMadeAgain) {
  ASSERT_TRUE(Open(KvCodec::kNone, 2));
  Add(6);
  ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  engine_->EraseRank(1);
  ExpectInjected(false);
  ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  ExpectInjected(true);
}

TEST_F(StoresKvTest, AConversationKeepsItsPlan) {
  ASSERT_TRUE(Open());
  Add(6);
  ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  const auto conversation = app_->StartConversation();
  ASSERT_TRUE(conversation->Ask(Question(), nullptr));
  const auto first = engine_->last_spans;
  ASSERT_FALSE(first.empty());
  Add(6);
  ASSERT_TRUE(app_->EncodePending(nullptr, {}));
  ASSERT_TRUE(conversation->Ask(Question(), nullptr));
  const auto& second = engine_->last_spans;
  ASSERT_GT(second.size(), first.size());
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(second[i].key, first[i].key);
  EXPECT_EQ(log_->wrong_rows, 0U);
}

// A server's cache ends at whole blocks: a later turn's facts begin at one, whose tokens the server
// has computed before.
TEST_F(StoresKvTest, ALaterTurnsFactsBeginWhereTheCacheCanEnd) {
  ASSERT_TRUE(Open());
  constexpr uint32_t kBlock = 16;
  engine_->SetCacheBlock(kBlock);
  auto conversation = app_->StartConversation();
  std::vector<Token> warm;
  for (int turn = 0; turn < 4; ++turn) {
    Add(12);
    ASSERT_TRUE(app_->EncodePending(nullptr, {}));
    AskRequest request = Question();
    request.compose.facts = 12;
    const auto answer = conversation->Ask(request, nullptr);
    ASSERT_TRUE(answer) << answer.error().message;
    const std::lock_guard lock(engine_->mutex);
    const auto question =
        std::find_if(engine_->started.begin(), engine_->started.end(),
                     [](const GenerateRequest& one) { return one.sampling.max_tokens > 1; });
    ASSERT_NE(question, engine_->started.end());
    if (turn > 0) {
      // The first of a later turn was asked for at once, the others while the user read.
      if (question != engine_->started.begin()) warm = engine_->started.front().prompt.tokens;
      ASSERT_FALSE(warm.empty());
      EXPECT_EQ(warm.size() % kBlock, 0U);
      const std::vector<Token>& tokens = question->prompt.tokens;
      ASSERT_GT(tokens.size(), warm.size());
      EXPECT_TRUE(std::equal(warm.begin(), warm.end(), tokens.begin()));
      EXPECT_TRUE(std::any_of(question->prompt.spans.begin(), question->prompt.spans.end(),
                              [&](const PromptSpan& span) { return span.first == warm.size(); }));
    }
    engine_->started.erase(engine_->started.begin(), std::next(question));
    warm.clear();
  }
  conversation.reset();  // waits for what it began
  EXPECT_EQ(engine_->started.size(), 1U);
  EXPECT_EQ(engine_->started.front().sampling.max_tokens, 1U);
  EXPECT_EQ(log_->wrong_rows, 0U);
}

TEST_F(StoresKvTest, AServerThatIsAwayBlamesNoFact) {
  ASSERT_TRUE(Open());
  Add(6);
  engine_->away = true;
  EXPECT_EQ(app_->EncodePending(nullptr, {}).error().code, Code::kTransient);
  EXPECT_TRUE(app_->Ask(Question(), nullptr));
  engine_->away = false;
  EXPECT_EQ(app_->EncodePending(nullptr, {})->episodes_done, 1U);
}

TEST_F(StoresKvTest, CodecsAreRefused) {
  EXPECT_EQ(Open(KvCodec::kInt8).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace inferscale
