// Random operations on the store and on FactStoreModel: both must always agree.
#include "fact_store_model.h"

#include <gtest/gtest.h>

#include <random>

#include "fact_store_testing.h"

namespace inferscale {
namespace {

class Walk {
 public:
  explicit Walk(uint32_t seed) : random_(seed) {
    options_.path = dir_.File("memory.db");
    options_.episode_facts = static_cast<uint32_t>(1 + Below(4));
    options_.max_episode_bytes = 60 + Below(100);
    model_.emplace(options_.episode_facts, options_.max_episode_bytes);
    model_->now = clock_.NowMs();
    Open();
  }

  void Step() {
    switch (Below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Add();
      case 4:
        return Update();
      case 5:
        return Delete();
      case 6:
        return Below(8) == 0 ? DeleteScope() : Delete();
      case 7:
      case 8:
      case 9:
        return PutKv();
      case 10:
        return ForgetOrClear();
      case 11:
        return Fail();
      case 12:
        return PutAnchor();
      case 13:
        if (Below(8) == 0) return DropSetting();
        return Below(4) == 0 ? Upkeep() : Add();
      case 14:
        return PutKept();
      default:
        return Pass();
    }
  }

  void Compare() {
    CompareFacts();
    if (testing::Test::HasFailure()) return;
    CompareKv();
    CompareUsers();
  }

 private:
  size_t Below(size_t limit) { return random_() % limit; }
  template <typename T>
  const T& OneOf(const std::vector<T>& list) {
    return list[Below(list.size())];
  }
  Scope AnyScope() { return {OneOf(tenants_), OneOf(users_), "", Below(2) == 0 ? "r1" : "r2"}; }
  std::string AnyText() {
    return fmt::format("word{}{}{}", Below(40), Below(3) == 0 ? "!" : "",
                       std::string(Below(40), 'x'));
  }
  Hash128 AnyKey() { return {1, Below(30)}; }
  std::string AnyId() {
    return model_->facts.empty() || Below(20) == 0 ? "nobody" : OneOf(model_->facts).id;
  }

  void Open() {
    store_.reset();
    auto store = FactStore::Open(clock_, options_);
    ASSERT_OK(store);
    store_ = *std::move(store);
  }

  void Add() {
    std::vector<Fact> batch;
    for (size_t n = 1 + Below(4); n > 0; --n) {
      Fact fact = MakeFact(AnyText(), AnyScope());
      if (Below(3) == 0) fact.speaker = "Ana";
      if (Below(6) == 0) fact.expires_ms = clock_.NowMs() + static_cast<int64_t>(Below(5000));
      batch.push_back(fact);
    }
    const auto found = store_->FindDuplicates(batch);
    for (size_t i = 0; i < batch.size(); ++i) {
      ASSERT_EQ((*found)[i], model_->Duplicate(batch[i]));
    }
    const auto results = store_->Add(batch, {}, kEmbedder);
    ASSERT_OK(results);
    for (size_t i = 0; i < batch.size(); ++i) {
      const std::string known = model_->Duplicate(batch[i]);
      ASSERT_EQ((*results)[i].event, known.empty() ? AddEvent::kAdded : AddEvent::kDuplicate);
      if (known.empty()) {
        model_->Add(batch[i], (*results)[i].id);
      } else {
        ASSERT_EQ((*results)[i].id, known);
      }
    }
  }

  void Update() {
    const std::string id = AnyId();
    Fact* fact = model_->Find(id);
    const std::string tenant = fact != nullptr ? fact->scope.tenant : "t1";
    FactUpdate update;
    if (Below(3) != 0) update.text = fact != nullptr && Below(4) == 0 ? fact->text : AnyText();
    if (Below(4) == 0) update.speaker = "Ben";
    if (Below(4) == 0) update.metadata = R"({"n":1})";
    if (Below(6) == 0) update.expires_ms = std::optional<int64_t>(clock_.NowMs() + 3000);
    const auto updated = store_->Update(tenant, id, update, {}, kEmbedder);
    const bool expected = fact != nullptr && model_->Alive(*fact);
    ASSERT_EQ(updated.has_value(), expected);
    if (expected) model_->Update(id, update);
  }

  void Delete() {
    std::vector<std::string> ids;
    std::set<std::string> expected;
    const std::string& tenant = OneOf(tenants_);
    for (size_t n = 1 + Below(2); n > 0; --n) {
      ids.push_back(AnyId());
      const Fact* fact = model_->Find(ids.back());
      if (fact != nullptr && fact->scope.tenant == tenant) expected.insert(fact->id);
    }
    ASSERT_EQ(*store_->Delete(tenant, ids), expected.size());
    model_->Delete(expected, "DELETE");
  }

  void DeleteScope() {
    Scope scope = AnyScope();
    if (Below(2) == 0) scope.run = "";
    std::set<std::string> ids;
    for (const Fact& fact : model_->facts) {
      if (fact.scope.tenant == scope.tenant && fact.scope.user == scope.user &&
          (scope.run.empty() || fact.scope.run == scope.run)) {
        ids.insert(fact.id);
      }
    }
    ASSERT_EQ(*store_->DeleteScope(scope), ids.size());
    model_->Delete(ids, "DELETE");
  }

  EncodedEpisode AnyEncoding() {
    const int64_t id = OneOf(model_->facts).episode;
    const Episode episode{id, {}, model_->EpisodeFacts(id)};
    std::vector<Fact> window;
    for (size_t n = Below(4); n > 0; --n) window.push_back(OneOf(model_->facts));
    return Encode(episode, AnyKey(), window, static_cast<uint32_t>(1 + Below(episode.facts.size())),
                  Below(4) == 0 ? encodings_[1] : kEncoding);
  }
  void Put(const EncodedEpisode& encoded) {
    const Fingerprint& model = OneOf(models_);
    const Status put = store_->PutKv(model, encoded);
    ASSERT_EQ(put.has_value(), model_->CanPut(encoded));
    if (put) {
      model_->PutKv(model, encoded);
    } else {
      ASSERT_EQ(put.error().code, Code::kConflict);
    }
  }
  void PutKv() {
    if (!model_->facts.empty()) Put(AnyEncoding());
  }
  // An encoding that was made some steps ago.
  void PutKept() {
    if (kept_) Put(*kept_);
    kept_.reset();
    if (!model_->facts.empty()) kept_ = AnyEncoding();
  }

  void ForgetOrClear() {
    const Hash128 key = AnyKey();
    if (Below(2) == 0) {
      ASSERT_OK(store_->ForgetKv(std::span(&key, 1)));
      model_->ForgetKey(key);
    } else {
      ASSERT_OK(store_->ClearGarbage(std::span(&key, 1)));
      model_->garbage.erase(key);
    }
  }

  void DropSetting() {
    const Fingerprint& model = OneOf(models_);
    const Hash128& encoding = OneOf(encodings_);
    ASSERT_OK(store_->DropSetting(model, encoding));
    model_->DropSetting(model, encoding);
  }

  void Fail() {
    const int64_t episode = model_->facts.empty() ? 1 : OneOf(model_->facts).episode;
    const Fingerprint& model = OneOf(models_);
    ASSERT_OK(store_->PutEncodeFailure(model, episode, "test"));
    if (!model_->facts.empty()) model_->Fail(model, episode);
  }

  void PutAnchor() {
    const FactStoreModel::User user(OneOf(tenants_), OneOf(users_));
    FactStoreModel::Anchor anchor{{}, model_->Count(user)};
    for (const Fact& fact : model_->facts) {
      const bool of_user = fact.scope.tenant == user.first && fact.scope.user == user.second;
      if (of_user && Below(3) == 0) anchor.ids.push_back(fact.id);
    }
    std::ranges::shuffle(anchor.ids, random_);
    ASSERT_OK(store_->PutAnchor(user.first, user.second, anchor.ids));
    model_->anchors[{user, anchor.ids.size()}] = anchor;
  }

  void Upkeep() {
    if (Below(2) == 0) ASSERT_OK(store_->Compact());
    ASSERT_OK(store_->Verify());
    Open();
  }

  void Pass() {
    clock_.Advance(static_cast<int64_t>(Below(2000)));
    model_->now = clock_.NowMs();
    if (Below(2) == 0) return;
    std::set<std::string> expired;
    for (const Fact& fact : model_->facts) {
      if (!model_->Alive(fact)) expired.insert(fact.id);
    }
    ASSERT_EQ(*store_->DeleteExpired(), expired.size());
    model_->Delete(expired, "EXPIRE");
  }

  static std::string Describe(const Fact& fact) {
    return fmt::format("{} {} {}/{} \"{}\" \"{}\" {} v{} {} {} {} ep{}", fact.row, fact.id,
                       fact.scope.tenant, fact.scope.user, fact.text, fact.speaker, fact.metadata,
                       fact.version, fact.created_ms, fact.updated_ms, fact.expires_ms.value_or(-1),
                       fact.episode);
  }
  static std::string Describe(const std::vector<Fact>& facts) {
    std::string out;
    for (const Fact& fact : facts) out += Describe(fact) + "\n";
    return out;
  }

  void CompareFacts() {
    for (const std::string& tenant : tenants_) {
      std::vector<Fact> expected;
      std::ranges::copy_if(model_->facts, std::back_inserter(expected), [&](const Fact& fact) {
        return fact.scope.tenant == tenant && model_->Alive(fact);
      });
      const ListQuery all{.scope = {tenant, "", "", ""}, .limit = 10'000};
      ASSERT_EQ(Describe(*store_->List(all)), Describe(expected));
    }
    const std::string id = AnyId();
    const Fact* fact = model_->Find(id);
    const std::string tenant = fact != nullptr ? fact->scope.tenant : "t1";
    const auto got = store_->Get(tenant, id);
    ASSERT_EQ(got.has_value(), fact != nullptr && model_->Alive(*fact));
    if (got) {
      ASSERT_EQ(Describe(*got), Describe(*fact));
    }
    for (const auto& [known, entries] : model_->histories) {
      if (Below(8) == 0) CompareHistory(known, entries);
    }
  }
  void CompareHistory(const std::string& id, const std::vector<HistoryEntry>& expected) {
    auto history = store_->History("t1", id);
    if (!history) history = store_->History("t2", id);
    ASSERT_OK(history);
    ASSERT_EQ(history->size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const HistoryEntry& a = (*history)[i];
      const HistoryEntry& b = expected[i];
      ASSERT_EQ(std::tie(a.version, a.event, a.old_text, a.new_text, a.at_ms),
                std::tie(b.version, b.event, b.old_text, b.new_text, b.at_ms));
    }
  }

  void CompareKv() {
    const std::set<int64_t> ids = model_->Episodes();
    const std::vector<int64_t> episodes(ids.begin(), ids.end());
    const auto stored = store_->GetEpisodes(episodes);
    ASSERT_OK(stored);
    ASSERT_EQ(stored->size(), episodes.size());
    for (const Episode& episode : *stored) {
      ASSERT_EQ(Describe(episode.facts), Describe(model_->EpisodeFacts(episode.id)));
    }
    for (const Fingerprint& model : models_) {
      for (const Hash128& encoding : encodings_) CompareSetting(model, encoding, episodes);
    }
    const auto garbage = store_->Garbage(10'000);
    ASSERT_EQ(std::set(garbage->begin(), garbage->end()), model_->garbage);
    ASSERT_EQ(store_->Stats(kModel)->episodes, episodes.size());
  }

  void CompareSetting(const Fingerprint& model, const Hash128& encoding,
                      const std::vector<int64_t>& episodes) {
    std::map<int64_t, EpisodeKv> expected;
    for (const auto& kv : model_->kvs) {
      if (kv.fingerprint == model && kv.kv.encoding == encoding) expected[kv.kv.episode] = kv.kv;
    }
    const auto kvs = store_->GetKv(episodes, model, encoding);
    ASSERT_OK(kvs);
    ASSERT_EQ(kvs->size(), expected.size());
    for (const EpisodeKv& kv : *kvs) {
      const EpisodeKv& other = expected.at(kv.episode);
      ASSERT_EQ(std::tie(kv.key, kv.covered, kv.fact_tokens, kv.encoding),
                std::tie(other.key, other.covered, other.fact_tokens, other.encoding));
      ASSERT_TRUE(*store_->IsReferenced(kv.key));
    }
    for (const int64_t grown_ms : {int64_t{0}, clock_.NowMs() - 3000, INT64_MAX}) {
      const auto expected_ids = model_->Pending(model, encoding, grown_ms, false);
      ASSERT_EQ(*store_->PendingEpisodes(model, encoding, {.grown_ms = grown_ms}), expected_ids);
    }
    ASSERT_EQ(*store_->CountPending(model, encoding),
              model_->Pending(model, encoding, INT64_MAX, true).size());
  }

  void CompareUsers() {
    for (const std::string& tenant : tenants_) {
      for (const std::string& user : users_) {
        for (size_t size = 0; size < 4; ++size) CompareAnchor({tenant, user}, size);
      }
    }
  }

  void CompareAnchor(const FactStoreModel::User& user, size_t size) {
    const auto anchor = model_->anchors[{user, size}];
    std::vector<std::string> ids;
    const auto facts = store_->GetAnchor(user.first, user.second, size);
    for (const Fact& fact : *facts) {
      ids.push_back(fact.id);
    }
    ASSERT_EQ(ids, anchor.ids);
    const auto age = store_->GetAnchorAge(user.first, user.second, size);
    ASSERT_EQ(age->facts_then, anchor.facts_then);
    ASSERT_EQ(age->facts_now, model_->Count(user));
  }

  const std::vector<std::string> tenants_ = {"t1", "t2"};
  const std::vector<std::string> users_ = {"ana", "ben"};
  const std::vector<Fingerprint> models_ = {kModel, {9, 9}};
  const std::vector<Hash128> encodings_ = {kEncoding, {8, 8}};
  std::mt19937 random_;
  TempDir dir_;
  ManualClock clock_{1'700'000'000'000};
  FactStoreOptions options_;
  std::unique_ptr<FactStore> store_;
  std::optional<FactStoreModel> model_;
  std::optional<EncodedEpisode> kept_;
};

TEST(FactStoreModelTest, RandomWalksAgree) {
  const uint32_t first = std::random_device{}();
  for (uint32_t seed = first; seed < first + 4; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Walk walk(seed);
    for (int step = 0; step < 250; ++step) {
      SCOPED_TRACE(fmt::format("step {}", step));
      walk.Step();
      if (!testing::Test::HasFailure()) walk.Compare();
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace inferscale
