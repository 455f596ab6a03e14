#include "memory/fact_store.h"

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <thread>

#include "fact_store_testing.h"
#include "memory/half.h"

namespace inferscale {
namespace {

class FactStoreTest : public testing::Test {
 protected:
  void SetUp() override { Reopen(); }

  void Reopen() {
    store_.reset();
    auto store = FactStore::Open(clock_, options_);
    ASSERT_OK(store);
    store_ = *std::move(store);
  }

  std::string Add(const Fact& fact, const std::vector<float>& vector = {}) {
    const auto results = store_->Add(std::span(&fact, 1), std::span(&vector, 1), kEmbedder);
    EXPECT_OK(results);
    return results ? results->front().id : "";
  }
  std::string Add(const std::string& text) { return Add(MakeFact(text)); }

  Fact Get(const std::string& id) {
    const auto fact = store_->Get("default", id);
    EXPECT_OK(fact);
    return fact.value_or(Fact{});
  }
  Episode EpisodeOf(const std::string& id) {
    const int64_t episode = Get(id).episode;
    const auto episodes = store_->GetEpisodes(std::span(&episode, 1));
    EXPECT_EQ(episodes->size(), 1U);
    return episodes->front();
  }
  std::vector<std::string> Texts(const std::vector<Fact>& facts) {
    std::vector<std::string> texts;
    for (const Fact& fact : facts) texts.push_back(fact.text);
    return texts;
  }
  std::vector<std::string> List(ListQuery query) { return Texts(store_->List(query).value()); }

  void PutKv(const std::string& id, uint64_t key, const std::vector<Fact>& window = {}) {
    const Episode episode = EpisodeOf(id);
    ASSERT_OK(store_->PutKv(
        kModel, Encode(episode, {0, key}, window, static_cast<uint32_t>(episode.facts.size()))));
  }
  bool HasKv(int64_t episode) { return !store_->GetKv(std::span(&episode, 1), kModel)->empty(); }
  std::vector<uint64_t> Garbage() {
    std::vector<uint64_t> keys;
    const auto garbage = store_->Garbage(100);
    for (const Hash128& key : garbage.value()) keys.push_back(key.low);
    std::ranges::sort(keys);
    return keys;
  }
  size_t Delete(const std::string& id) {
    return store_->Delete("default", std::span(&id, 1)).value();
  }
  void UpdateText(const std::string& id, const std::string& text) {
    FactUpdate update;
    update.text = text;
    ASSERT_OK(store_->Update("default", id, update, {}, kEmbedder));
  }

  TempDir dir_;
  ManualClock clock_{1'700'000'000'000};
  FactStoreOptions options_{.path = dir_.File("memory.db"), .episode_facts = 3};
  std::unique_ptr<FactStore> store_;
};

const Scope kAnyone;

using Strings = std::vector<std::string>;
using Keys = std::vector<uint64_t>;

TEST_F(FactStoreTest, KeepsAFactAsItWasGiven) {
  Fact given = MakeFact("Likes tea", {"t", "ana", "helper", "r1"});
  given.speaker = "Ana";
  given.when_ms = -5;
  given.expires_ms = clock_.NowMs() + 1;
  given.metadata = R"({"a": [1, "ü"]})";
  const std::string id = Add(given);
  Reopen();
  const auto fact = store_->Get("t", id);
  ASSERT_OK(fact);
  EXPECT_EQ(fact->id.size(), 36U);
  EXPECT_EQ(fact->id, id);
  EXPECT_EQ(fact->text, given.text);
  EXPECT_EQ(fact->speaker, given.speaker);
  EXPECT_EQ(fact->when_ms, given.when_ms);
  EXPECT_EQ(fact->metadata, given.metadata);
  EXPECT_EQ(fact->expires_ms, given.expires_ms);
  EXPECT_EQ(fact->scope, given.scope);
  EXPECT_EQ(fact->version, 1U);
  EXPECT_EQ(fact->created_ms, clock_.NowMs());
  EXPECT_EQ(store_->Get("other", id).error().code, Code::kNotFound);
}

TEST_F(FactStoreTest, ChecksEveryFactBeforeAddingAny) {
  Fact metadata = MakeFact("x");
  metadata.metadata = "[]";
  Fact user = MakeFact("x");
  user.scope.user = "\xFF";
  const std::pair<Fact, const char*> bad[] = {
      {MakeFact(""), "fact 1: its text is empty"},
      {MakeFact(" \n\u2003"), "fact 1: its text is empty"},
      {MakeFact("a\xC3("), "fact 1: its text is not UTF-8 at byte 1"},
      {MakeFact(std::string(16 * 1024 + 1, 'x')), "fact 1: text and speaker have 16385 bytes"},
      {metadata, "fact 1: its metadata is not a JSON object"},
      {user, "fact 1: its user is not UTF-8 at byte 0"}};
  for (const auto& [fact, message] : bad) {
    const Fact batch[] = {MakeFact("good"), fact};
    const auto added = store_->Add(batch, {}, kEmbedder);
    ASSERT_FALSE(added.has_value()) << message;
    EXPECT_EQ(added.error().code, Code::kInvalid);
    EXPECT_TRUE(added.error().message.starts_with(message)) << added.error().message;
  }
  const Fact one = MakeFact("x");
  const std::vector<float> vectors[] = {{1}, {2}};
  EXPECT_EQ(store_->Add(std::span(&one, 1), vectors, kEmbedder).error().code, Code::kInvalid);
  const std::vector<float> nan[] = {{std::nanf("")}};
  EXPECT_EQ(store_->Add(std::span(&one, 1), nan, kEmbedder).error().code, Code::kInvalid);
  EXPECT_EQ(store_->Stats(kModel)->facts, 0U);
  EXPECT_EQ(store_->Add({}, {}, kEmbedder)->size(), 0U);
}

TEST_F(FactStoreTest, FoldsDuplicatesOfTheSameScope) {
  const std::string id = Add("Likes tea.");
  const Fact batch[] = {MakeFact("likes  TEA"), MakeFact("new"), MakeFact("New!"),
                        MakeFact("likes tea", {"default", "ana", "", "r2"})};
  EXPECT_EQ(*store_->FindDuplicates(batch), (Strings{id, "", "", ""}));
  const auto results = store_->Add(batch, {}, kEmbedder);
  ASSERT_OK(results);
  EXPECT_EQ((*results)[0].id, id);
  EXPECT_EQ((*results)[0].event, AddEvent::kDuplicate);
  EXPECT_EQ((*results)[1].event, AddEvent::kAdded);
  EXPECT_EQ((*results)[2].event, AddEvent::kDuplicate);
  EXPECT_EQ((*results)[2].id, (*results)[1].id);
  EXPECT_EQ((*results)[3].event, AddEvent::kAdded);
  EXPECT_EQ(store_->Stats(kModel)->facts, 3U);

  UpdateText(id, "Likes coffee");
  EXPECT_EQ(*store_->FindDuplicates(std::span(batch, 1)), Strings{""});
  EXPECT_EQ(Delete(id), 1U);
  EXPECT_NE(Add("likes coffee"), id);
}

TEST_F(FactStoreTest, AnExpiredFactIsGone) {
  Fact fact = MakeFact("soon gone");
  fact.expires_ms = clock_.NowMs() + 100;
  const std::string id = Add(fact);
  const int64_t row = Get(id).row;
  const std::string other = Add("stays");
  PutKv(id, 1);
  clock_.Advance(99);
  EXPECT_EQ(List({.scope = {"default", "ana", "", ""}}), (Strings{"soon gone", "stays"}));
  EXPECT_EQ(*store_->DeleteExpired(), 0U);
  clock_.Advance(1);
  EXPECT_EQ(store_->Get("default", id).error().code, Code::kNotFound);
  EXPECT_EQ(List({.scope = {"default", "ana", "", ""}}), Strings{"stays"});
  EXPECT_TRUE(store_->GetRows(std::span(&row, 1))->empty());
  EXPECT_EQ(store_->Update("default", id, {}, {}, kEmbedder).error().code, Code::kNotFound);
  EXPECT_EQ(*store_->FindDuplicates(std::span(&fact, 1)), Strings{""});
  EXPECT_EQ(*store_->DeleteExpired(), 1U);
  EXPECT_EQ(*store_->DeleteExpired(), 0U);
  EXPECT_EQ(store_->History("default", id)->back().event, "EXPIRE");
  EXPECT_EQ(Garbage(), Keys{1});
  EXPECT_EQ(EpisodeOf(other).facts.size(), 1U);
}

TEST_F(FactStoreTest, ListsByScopeFilterAndPage) {
  for (const char* text : {"a", "b", "c", "d"}) {
    Fact fact = MakeFact(text, {"default", text[0] < 'c' ? "ana" : "ben", "", "r1"});
    fact.metadata = fmt::format(R"({{"n": {}}})", text[0] - 'a');
    Add(fact);
  }
  Add(MakeFact("z", {"other", "ana", "", "r1"}));
  EXPECT_EQ(List({}), (Strings{"a", "b", "c", "d"}));
  EXPECT_EQ(List({.scope = {"default", "ana", "", ""}}), (Strings{"a", "b"}));
  EXPECT_EQ(List({.scope = {"default", "ana", "", "r2"}}), Strings{});
  EXPECT_EQ(List({.scope = {"default", "", "", "r1"}, .newest_first = true}),
            (Strings{"d", "c", "b", "a"}));
  EXPECT_EQ(List({.scope = kAnyone, .limit = 2, .offset = 1}), (Strings{"b", "c"}));
  const Filter filter = Filter::Parse(R"({"n": {"gte": 1}})").value();
  EXPECT_EQ(List({.scope = kAnyone, .filter = &filter}), (Strings{"b", "c", "d"}));
  EXPECT_EQ(List({.scope = kAnyone, .filter = &filter, .limit = 1, .offset = 1}), Strings{"c"});
  EXPECT_EQ(List({.scope = kAnyone, .filter = &filter, .limit = 0}), Strings{});
  EXPECT_EQ(List({.scope = kAnyone, .limit = std::numeric_limits<size_t>::max()}).size(), 4U);
}

TEST_F(FactStoreTest, AnUpdateKeepsPlaceAndHistory) {
  const std::string a = Add("first");
  const std::string b = Add("second");
  const int64_t row = Get(a).row;
  clock_.Advance(10);
  FactUpdate update;
  update.text = "changed";
  update.speaker = "Ana";
  const auto updated = store_->Update("default", a, update, {}, kEmbedder);
  ASSERT_OK(updated);
  EXPECT_EQ(updated->text, "changed");
  EXPECT_EQ(updated->version, 2U);
  EXPECT_EQ(updated->updated_ms, updated->created_ms + 10);
  EXPECT_EQ(updated->row, row);
  EXPECT_EQ(Texts(EpisodeOf(a).facts), (Strings{"changed", "second"}));

  FactUpdate metadata;
  metadata.metadata = R"({"a":1})";
  metadata.expires_ms = std::optional<int64_t>(clock_.NowMs() + 5);
  EXPECT_EQ(store_->Update("default", a, metadata, {}, kEmbedder)->version, 2U);
  metadata.expires_ms = std::optional<int64_t>();
  EXPECT_EQ(store_->Update("default", a, metadata, {}, kEmbedder)->expires_ms, std::nullopt);
  metadata.metadata = "nonsense";
  EXPECT_EQ(store_->Update("default", a, metadata, {}, kEmbedder).error().code, Code::kInvalid);
  EXPECT_EQ(store_->Update("other", a, update, {}, kEmbedder).error().code, Code::kNotFound);

  const auto history = store_->History("default", a).value();
  ASSERT_EQ(history.size(), 2U);
  EXPECT_EQ(history[0].event, "ADD");
  EXPECT_EQ(history[0].new_text, "first");
  EXPECT_EQ(history[1].event, "UPDATE");
  EXPECT_EQ(history[1].old_text, "first");
  EXPECT_EQ(history[1].new_text, "changed");
  EXPECT_EQ(history[1].version, 2U);
  EXPECT_EQ(store_->History("other", a).error().code, Code::kNotFound);
  EXPECT_EQ(store_->History("default", "none").error().code, Code::kNotFound);
}

TEST_F(FactStoreTest, NoTextOutlivesItsFact) {
  const std::string id = Add("canary one");
  UpdateText(id, "canary two");
  EXPECT_EQ(Delete(id), 1U);
  EXPECT_EQ(Delete(id), 0U);
  const auto history = store_->History("default", id).value();
  ASSERT_EQ(history.size(), 3U);
  EXPECT_EQ(history[2].event, "DELETE");
  for (const HistoryEntry& entry : history) {
    EXPECT_EQ(entry.old_text, "");
    EXPECT_EQ(entry.new_text, "");
  }
}

TEST_F(FactStoreTest, DeletesByScopeOnly) {
  for (const char* run : {"r1", "r2"}) {
    for (const char* user : {"ana", "ben"}) Add(MakeFact("x", {"default", user, "", run}));
  }
  Add(MakeFact("x", {"other", "ana", "", "r1"}));
  EXPECT_EQ(*store_->DeleteScope({"default", "ana", "", "r1"}), 1U);
  EXPECT_EQ(*store_->DeleteScope({"default", "ana", "", "r1"}), 0U);
  EXPECT_EQ(*store_->DeleteScope({"default", "", "", "r2"}), 2U);
  EXPECT_EQ(*store_->DeleteScope({}), 1U);
  const FactStoreStats stats = store_->Stats(kModel).value();
  EXPECT_EQ(stats.facts, 1U);
  EXPECT_EQ(stats.episodes, 1U);
  EXPECT_EQ(stats.users, 1U);
}

TEST_F(FactStoreTest, EpisodesFillUpOneAfterTheOther) {
  Strings ids;
  for (const char* text : {"a", "b", "c", "d"}) ids.push_back(Add(text));
  const std::string other = Add(MakeFact("o", {"default", "ana", "", "r2"}));
  ids.push_back(Add("e"));
  EXPECT_EQ(Texts(EpisodeOf(ids[0]).facts), (Strings{"a", "b", "c"}));
  EXPECT_EQ(Texts(EpisodeOf(ids[3]).facts), (Strings{"d", "e"}));
  EXPECT_EQ(Texts(EpisodeOf(other).facts), Strings{"o"});
  EXPECT_EQ(Texts(*store_->FactsBefore(Get(ids[3]).episode, 2)), (Strings{"b", "c"}));
  EXPECT_EQ(Texts(*store_->FactsBefore(Get(ids[3]).episode, 9)), (Strings{"a", "b", "c"}));
  EXPECT_TRUE(store_->FactsBefore(Get(other).episode, 9)->empty());

  // A gap in an earlier episode is not filled, one in the newest is; and an empty one goes.
  Delete(ids[1]);
  Delete(ids[3]);
  ids.push_back(Add("f"));
  EXPECT_EQ(Texts(EpisodeOf(ids[4]).facts), (Strings{"e", "f"}));
  const int64_t gone = Get(other).episode;
  Delete(other);
  EXPECT_TRUE(store_->GetEpisodes(std::span(&gone, 1))->empty());
  EXPECT_EQ(store_->Stats(kModel)->episodes, 2U);
}

TEST_F(FactStoreTest, EpisodesAreLimitedInBytes) {
  options_.max_episode_bytes = 100;
  Reopen();
  const std::string a = Add(std::string(60, 'a'));
  const std::string b = Add(std::string(60, 'b'));
  const std::string c = Add(std::string(300, 'c'));
  const std::string d = Add("d");
  EXPECT_EQ(EpisodeOf(a).facts.size(), 1U);
  EXPECT_EQ(EpisodeOf(b).facts.size(), 1U);
  EXPECT_EQ(EpisodeOf(c).facts.size(), 1U);
  EXPECT_EQ(EpisodeOf(d).facts.size(), 1U);
  UpdateText(d, std::string(90, 'd'));
  EXPECT_NE(Get(Add(std::string(20, 'e'))).episode, Get(d).episode);
}

TEST_F(FactStoreTest, AppendingKeepsKvUntilItIsReplaced) {
  const std::string a = Add("a");
  PutKv(a, 1);
  const int64_t episode = Get(a).episode;
  const auto pending = [&] {
    return store_->PendingEpisodes(kModel, kEncoding, 0, 9, false).value();
  };
  EXPECT_TRUE(pending().empty());
  EXPECT_EQ(store_->Stats(kModel)->episodes_encoded, 1U);
  Add("b");
  ASSERT_TRUE(HasKv(episode));
  const EpisodeKv kv = store_->GetKv(std::span(&episode, 1), kModel)->front();
  EXPECT_EQ(kv.key, (Hash128{0, 1}));
  EXPECT_EQ(kv.covered, 1U);
  EXPECT_EQ(kv.fact_tokens, std::vector<uint32_t>{10});
  EXPECT_EQ(kv.encoding, kEncoding);
  EXPECT_EQ(pending(), std::vector<int64_t>{episode});
  EXPECT_EQ(*store_->CountPending(kModel, kEncoding), 1U);
  EXPECT_TRUE(Garbage().empty());

  PutKv(a, 2);
  EXPECT_EQ(Garbage(), Keys{1});
  EXPECT_TRUE(*store_->IsReferenced({0, 2}));
  EXPECT_FALSE(*store_->IsReferenced({0, 1}));
  EXPECT_TRUE(pending().empty());
  EXPECT_EQ(*store_->CountPending(kModel, Hash128{9, 9}), 1U);
  EXPECT_EQ(*store_->CountPending(Fingerprint{9, 9}, kEncoding), 1U);
  const Hash128 key{0, 1};
  ASSERT_OK(store_->ClearGarbage(std::span(&key, 1)));
  EXPECT_TRUE(Garbage().empty());
}

TEST_F(FactStoreTest, ChangingACoveredFactForgetsItsKv) {
  const std::string a = Add("a");
  const std::string b = Add("b");
  const int64_t episode = Get(a).episode;
  const Episode both = EpisodeOf(a);
  ASSERT_OK(store_->PutKv(kModel, Encode(both, {0, 1}, {}, 1)));
  UpdateText(b, "b, not covered");
  EXPECT_TRUE(HasKv(episode));
  Delete(b);
  EXPECT_TRUE(HasKv(episode));
  UpdateText(a, "A");
  EXPECT_FALSE(HasKv(episode));
  EXPECT_EQ(Garbage(), Keys{1});

  PutKv(a, 2);
  FactUpdate same_line;
  same_line.metadata = R"({"a":1})";
  ASSERT_OK(store_->Update("default", a, same_line, {}, kEmbedder));
  EXPECT_TRUE(HasKv(episode));
  Delete(a);
  EXPECT_EQ(Garbage(), (Keys{1, 2}));
}

TEST_F(FactStoreTest, ChangingAWindowForgetsTheKvBehindIt) {
  const std::string before = Add(MakeFact("before", {"default", "ana", "", "r0"}));
  const std::string a = Add("a");
  const std::string c = Add(MakeFact("c", {"default", "ana", "", "r2"}));
  PutKv(a, 1, {Get(before)});
  PutKv(c, 2, {Get(before)});
  PutKv(before, 3);
  UpdateText(before, "after");
  EXPECT_EQ(Garbage(), (Keys{1, 2, 3}));
  PutKv(a, 4, {Get(before)});
  PutKv(c, 5);
  Delete(before);
  EXPECT_EQ(Garbage(), (Keys{1, 2, 3, 4}));
  EXPECT_TRUE(HasKv(Get(c).episode));
}

TEST_F(FactStoreTest, PutKvRefusesWhatHasMoved) {
  const std::string a = Add("a");
  const std::string b = Add("b");
  const std::string w = Add(MakeFact("w", {"default", "ana", "", "r0"}));
  const Episode before = EpisodeOf(a);
  const EncodedEpisode plain = Encode(before, {0, 1}, {Get(w)}, 2);
  const auto code = [&](const EncodedEpisode& encoded) {
    const Status status = store_->PutKv(kModel, encoded);
    return status ? Code{} : status.error().code;
  };
  EncodedEpisode bad = plain;
  bad.kv.fact_tokens.pop_back();
  EXPECT_EQ(code(bad), Code::kInvalid);
  bad = plain;
  bad.kv.covered = 3;
  EXPECT_EQ(code(bad), Code::kInvalid);
  bad = plain;
  std::swap(bad.fact_ids[0], bad.fact_ids[1]);
  EXPECT_EQ(code(bad), Code::kConflict);

  UpdateText(w, "w2");
  EXPECT_EQ(code(plain), Code::kConflict);
  const EncodedEpisode with_new_window = Encode(before, {0, 1}, {Get(w)}, 2);
  UpdateText(b, "b2");
  EXPECT_EQ(code(with_new_window), Code::kConflict);
  const EncodedEpisode current = Encode(EpisodeOf(a), {0, 1}, {Get(w)}, 2);
  Delete(a);
  EXPECT_EQ(code(current), Code::kConflict);
  EXPECT_FALSE(HasKv(before.id));
  EXPECT_TRUE(Garbage().empty());
  // A window of another tenant's facts is refused too.
  const Fact foreign = MakeFact("x", {"other", "ana", "", "r1"});
  Add(foreign);
  const Fact theirs = store_->List({.scope = {"other", "", "", ""}})->front();
  EXPECT_EQ(code(Encode(EpisodeOf(b), {0, 1}, {theirs}, 1)), Code::kConflict);
}

TEST_F(FactStoreTest, AKeyIsGarbageOnlyWhenNothingRefersToIt) {
  const std::string a = Add(MakeFact("same", {"default", "ana", "", "r1"}));
  const std::string b = Add(MakeFact("same", {"default", "ana", "", "r2"}));
  PutKv(a, 1);
  PutKv(b, 1);
  Delete(a);
  EXPECT_TRUE(Garbage().empty());
  const Hash128 key{0, 1};
  ASSERT_OK(store_->ForgetKv(std::span(&key, 1)));
  EXPECT_EQ(Garbage(), Keys{1});
  EXPECT_FALSE(HasKv(Get(b).episode));
  PutKv(b, 1);
  EXPECT_TRUE(Garbage().empty());
}

TEST_F(FactStoreTest, FullEpisodesAndBackOff) {
  Strings ids;
  for (const char* text : {"a", "b", "c", "d"}) ids.push_back(Add(text));
  const int64_t full = Get(ids[0]).episode;
  const int64_t open = Get(ids[3]).episode;
  const auto pending = [&](bool full_only, int64_t after = 0) {
    return store_->PendingEpisodes(kModel, kEncoding, after, 9, full_only).value();
  };
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(pending(false), (Rows{full, open}));
  EXPECT_EQ(pending(true), Rows{full});
  EXPECT_EQ(pending(false, full), Rows{open});
  EXPECT_EQ(store_->PendingEpisodes(kModel, kEncoding, 0, 1, false)->size(), 1U);

  for (const int64_t wait : {1'000, 2'000, 4'000}) {
    ASSERT_OK(store_->PutEncodeFailure(kModel, full, "out of memory"));
    clock_.Advance(wait - 1);
    EXPECT_EQ(pending(false), Rows{open});
    EXPECT_EQ(*store_->CountPending(kModel, kEncoding), 2U);
    clock_.Advance(1);
    EXPECT_EQ(pending(false), (Rows{full, open}));
  }
  for (int i = 0; i < 80; ++i) ASSERT_OK(store_->PutEncodeFailure(kModel, full, "again"));
  clock_.Advance(3'600'000);
  EXPECT_EQ(pending(false), (Rows{full, open}));
  ASSERT_OK(store_->PutEncodeFailure(kModel, full, "again"));
  UpdateText(ids[0], "other text may work");
  EXPECT_EQ(pending(false), (Rows{full, open}));
  ASSERT_OK(store_->PutEncodeFailure(kModel, 999, "no such episode"));
}

TEST_F(FactStoreTest, AnAnchorGoesWithAnyOfItsFacts) {
  Strings ids;
  for (const char* text : {"a", "b", "c"}) ids.push_back(Add(text));
  EXPECT_TRUE(store_->GetAnchor("default", "ana")->empty());
  EXPECT_EQ(store_->GetAnchorAge("default", "ana")->facts_then, 0U);
  const Strings drawn = {ids[2], ids[0]};
  ASSERT_OK(store_->PutAnchor("default", "ana", drawn));
  EXPECT_EQ(Texts(*store_->GetAnchor("default", "ana")), (Strings{"c", "a"}));
  EXPECT_TRUE(store_->GetAnchor("default", "ben")->empty());
  Add("d");
  EXPECT_EQ(store_->GetAnchorAge("default", "ana")->facts_then, 3U);
  EXPECT_EQ(store_->GetAnchorAge("default", "ana")->facts_now, 4U);

  UpdateText(ids[1], "not in it");
  EXPECT_EQ(store_->GetAnchor("default", "ana")->size(), 2U);
  UpdateText(ids[0], "in it");
  EXPECT_TRUE(store_->GetAnchor("default", "ana")->empty());
  ASSERT_OK(store_->PutAnchor("default", "ana", drawn));
  ASSERT_OK(store_->PutAnchor("default", "ana", std::span(drawn).first(1)));
  EXPECT_EQ(store_->GetAnchor("default", "ana")->size(), 1U);
  Delete(ids[2]);
  EXPECT_TRUE(store_->GetAnchor("default", "ana")->empty());
  EXPECT_EQ(store_->PutAnchor("default", "ana", drawn).error().code, Code::kConflict);
  EXPECT_EQ(store_->PutAnchor("default", "ben", std::span(drawn).last(1)).error().code,
            Code::kConflict);
}

TEST_F(FactStoreTest, GenerationsGrowWithEveryChange) {
  int64_t last = store_->Generation("default", "ana").value();
  EXPECT_EQ(last, 0);
  const auto grew = [&] {
    const int64_t now = store_->Generation("default", "ana").value();
    return now > std::exchange(last, now);
  };
  const std::string id = Add("a");
  EXPECT_TRUE(grew());
  Add("A!");
  EXPECT_FALSE(grew());  // a duplicate changes nothing
  UpdateText(id, "b");
  EXPECT_TRUE(grew());
  const int64_t row = Get(id).row;
  const std::vector<float> vector = {1};
  ASSERT_OK(store_->PutVectors(std::span(&row, 1), std::span(&vector, 1), kEmbedder));
  EXPECT_TRUE(grew());
  Add(MakeFact("x", {"default", "ben", "", ""}));
  EXPECT_FALSE(grew());
  Delete(id);
  EXPECT_TRUE(grew());
}

TEST_F(FactStoreTest, VectorsBelongToTheirEmbedder) {
  const std::string a = Add(MakeFact("a"), {1.0F, -0.5F});
  const std::string b = Add("b");
  const Hash128 other{7, 7};
  const auto vectors = [&](const Hash128& embedder) {
    std::vector<std::vector<float>> out;
    EXPECT_OK(store_->ForEach("default", "ana", embedder, [&](Fact&&, std::span<const float> v) {
      out.emplace_back(v.begin(), v.end());
    }));
    return out;
  };
  using Vectors = std::vector<std::vector<float>>;
  EXPECT_EQ(vectors(kEmbedder), (Vectors{{1.0F, -0.5F}, {}}));
  EXPECT_EQ(vectors(other), (Vectors{{}, {}}));
  EXPECT_EQ(Texts(*store_->WithoutVector(kEmbedder, 9)), Strings{"b"});
  EXPECT_EQ(Texts(*store_->WithoutVector(other, 1)), Strings{"a"});
  const int64_t rows[] = {Get(a).row, Get(b).row, 999};
  const std::vector<float> made[] = {{2}, {3}, {4}};
  ASSERT_OK(store_->PutVectors(rows, made, other));
  EXPECT_EQ(vectors(other), (Vectors{{2}, {3}}));
  EXPECT_TRUE(store_->WithoutVector(other, 9)->empty());
  FactUpdate metadata;
  metadata.metadata = "{}";
  ASSERT_OK(store_->Update("default", a, metadata, {}, other));
  EXPECT_EQ(vectors(other), (Vectors{{2}, {3}}));
  UpdateText(a, "needs a new one");
  EXPECT_EQ(vectors(other), (Vectors{{}, {3}}));
}

TEST_F(FactStoreTest, DeletedBytesAreNowhereAfterCompact) {
  std::vector<float> vector(384);
  for (size_t i = 0; i < vector.size(); ++i) vector[i] = static_cast<float>(i) / 100.0F;
  std::string vector_canary(384 * 2, '\0');
  for (size_t i = 0; i < vector.size(); ++i) {
    const uint16_t half = FloatToHalf(vector[i]);
    std::memcpy(&vector_canary[i * 2], &half, 2);
  }
  const std::string text_canary = "canary-7c1e52";
  Strings ids;
  for (int i = 0; i < 200; ++i) {
    Fact fact = MakeFact(fmt::format("{} number {} {}", text_canary, i, std::string(i % 90, 'x')));
    fact.metadata = R"({"secret": "canary-7c1e52"})";
    ids.push_back(Add(fact, vector));
    Add(fmt::format("harmless {}", i));
  }
  for (size_t i = 0; i < ids.size(); i += 3) UpdateText(ids[i], text_canary + " updated");
  const auto found = [&](const std::string& canary) {
    return ReadWholeFile(options_.path).find(canary) != std::string::npos ||
           ReadWholeFile(options_.path + "-wal").find(canary) != std::string::npos;
  };
  ASSERT_TRUE(found(text_canary));
  ASSERT_TRUE(found(vector_canary.substr(100, 64)));
  ASSERT_EQ(*store_->Delete("default", ids), ids.size());
  const uint64_t bytes_before = store_->Stats(kModel)->file_bytes;
  ASSERT_OK(store_->Compact());
  EXPECT_LT(store_->Stats(kModel)->file_bytes, bytes_before / 2);
  EXPECT_FALSE(found(text_canary));
  EXPECT_FALSE(found(vector_canary.substr(100, 64)));
  EXPECT_EQ(store_->Stats(kModel)->facts, 200U);
}

TEST_F(FactStoreTest, TheFileIsForItsOwnerOnly) {
  namespace fs = std::filesystem;
  Add("a");
  for (const char* suffix : {"", "-wal"}) {
    EXPECT_EQ(fs::status(options_.path + suffix).permissions(),
              fs::perms::owner_read | fs::perms::owner_write);
  }
}

TEST_F(FactStoreTest, RefusesFilesThatAreNotItsOwn) {
  const auto open = [&](const std::string& name) {
    const auto store = FactStore::Open(clock_, {.path = dir_.File(name)});
    return store ? Error{Code{}, ""} : store.error();
  };
  std::ofstream(dir_.File("text")) << std::string(5000, 'x');
  EXPECT_EQ(open("text").code, Code::kCorrupt);
  EXPECT_EQ(open("missing/memory.db").code, Code::kTransient);

  const auto with_sql = [&](const std::string& name, const char* sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(dir_.File(name).c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  };
  with_sql("other.db", "CREATE TABLE t(x)");
  EXPECT_EQ(open("other.db").code, Code::kCorrupt);
  EXPECT_EQ(open("fresh.db").message, "");
  with_sql("fresh.db", "PRAGMA user_version=2");
  EXPECT_EQ(open("fresh.db").code, Code::kCorrupt);
  EXPECT_NE(open("fresh.db").message.find("newer version (schema 2"), std::string::npos);
  EXPECT_EQ(FactStore::Open(clock_, {.path = dir_.File("x.db"), .episode_facts = 0}).error().code,
            Code::kInvalid);
}

// Two processes would do the same: each has its own connections to the file.
TEST_F(FactStoreTest, TwoStoresShareAFile) {
  auto second = FactStore::Open(clock_, options_);
  ASSERT_OK(second);
  constexpr int kRounds = 60;
  std::atomic<int> failures{0};
  const auto work = [&](FactStore& store, const std::string& user) {
    for (int i = 0; i < kRounds; ++i) {
      const Fact fact = MakeFact(fmt::format("{} {}", user, i), {"default", "both", "", "r"});
      const auto added = store.Add(std::span(&fact, 1), {}, kEmbedder);
      if (!added || !store.Get("default", added->front().id)) ++failures;
      if (added && i % 3 == 0) {
        FactUpdate update;
        update.text = fmt::format("{} {} changed", user, i);
        if (!store.Update("default", added->front().id, update, {}, kEmbedder)) ++failures;
      }
      if (added && i % 5 == 4 && !store.Delete("default", std::span(&added->front().id, 1))) {
        ++failures;
      }
    }
  };
  std::thread other([&] { work(**second, "b"); });
  work(*store_, "a");
  other.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(store_->Stats(kModel)->facts, 2U * kRounds * 4 / 5);
  EXPECT_EQ(*store_->Generation("default", "both"), *(*second)->Generation("default", "both"));
  // Episodes stay within their limit and hold all facts.
  const auto facts = store_->List({.scope = kAnyone, .limit = 1000}).value();
  std::map<int64_t, size_t> counts;
  for (const Fact& fact : facts) ++counts[fact.episode];
  for (const auto& [episode, count] : counts) EXPECT_LE(count, 3U);
  EXPECT_EQ(counts.size(), store_->Stats(kModel)->episodes);
}

}  // namespace
}  // namespace inferscale
