// Episodes, their KV, the settings that it is made under, and anchors.
#include "fact_store_testing.h"

namespace inferscale {
namespace {

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
  const auto pending = [&] { return store_->PendingEpisodes(kModel, kEncoding, {}).value(); };
  EXPECT_TRUE(pending().empty());
  EXPECT_EQ(store_->Stats(kModel)->episodes_encoded, 1U);
  Add("b");
  ASSERT_TRUE(HasKv(episode));
  const EpisodeKv kv = store_->GetKv(std::span(&episode, 1), kModel, kEncoding)->front();
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
  const auto pending = [&](int64_t grown_ms, int64_t after = 0) {
    return store_->PendingEpisodes(kModel, kEncoding, {.after = after, .grown_ms = grown_ms})
        .value();
  };
  const int64_t now = clock_.NowMs();
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(pending(INT64_MAX), (Rows{full, open}));
  EXPECT_EQ(pending(now - 1), Rows{full});
  EXPECT_EQ(pending(now), (Rows{full, open}));  // it has not grown since
  EXPECT_EQ(pending(INT64_MAX, full), Rows{open});
  EXPECT_EQ(store_->PendingEpisodes(kModel, kEncoding, {.limit = 1})->size(), 1U);

  for (const int64_t wait : {1'000, 2'000, 4'000}) {
    ASSERT_OK(store_->PutEncodeFailure(kModel, full, "out of memory"));
    clock_.Advance(wait - 1);
    EXPECT_EQ(pending(INT64_MAX), Rows{open});
    EXPECT_EQ(*store_->CountPending(kModel, kEncoding), 2U);
    clock_.Advance(1);
    EXPECT_EQ(pending(INT64_MAX), (Rows{full, open}));
  }
  for (int i = 0; i < 80; ++i) ASSERT_OK(store_->PutEncodeFailure(kModel, full, "again"));
  clock_.Advance(3'600'000);
  EXPECT_EQ(pending(INT64_MAX), (Rows{full, open}));
  ASSERT_OK(store_->PutEncodeFailure(kModel, full, "again"));
  UpdateText(ids[0], "other text may work");
  EXPECT_EQ(pending(INT64_MAX), (Rows{full, open}));
  ASSERT_OK(store_->PutEncodeFailure(kModel, 999, "no such episode"));
}

TEST_F(FactStoreTest, AnAnchorGoesWithAnyOfItsFacts) {
  Strings ids;
  for (const char* text : {"a", "b", "c"}) ids.push_back(Add(text));
  EXPECT_TRUE(store_->GetAnchor("default", "ana", 2)->empty());
  EXPECT_EQ(store_->GetAnchorAge("default", "ana", 2)->facts_then, 0U);
  const Strings drawn = {ids[2], ids[0]};
  ASSERT_OK(store_->PutAnchor("default", "ana", drawn));
  EXPECT_EQ(Texts(*store_->GetAnchor("default", "ana", 2)), (Strings{"c", "a"}));
  EXPECT_TRUE(store_->GetAnchor("default", "ben", 2)->empty());
  Add("d");
  EXPECT_EQ(store_->GetAnchorAge("default", "ana", 2)->facts_then, 3U);
  EXPECT_EQ(store_->GetAnchorAge("default", "ana", 2)->facts_now, 4U);

  UpdateText(ids[1], "not in it");
  EXPECT_EQ(store_->GetAnchor("default", "ana", 2)->size(), 2U);
  UpdateText(ids[0], "in it");
  EXPECT_TRUE(store_->GetAnchor("default", "ana", 2)->empty());
  ASSERT_OK(store_->PutAnchor("default", "ana", drawn));
  ASSERT_OK(store_->PutAnchor("default", "ana", std::span(drawn).first(1)));
  EXPECT_EQ(store_->GetAnchor("default", "ana", 2)->size(), 2U);  // of another size
  EXPECT_EQ(store_->GetAnchor("default", "ana", 1)->size(), 1U);
  Delete(ids[2]);
  EXPECT_TRUE(store_->GetAnchor("default", "ana", 2)->empty());
  EXPECT_TRUE(store_->GetAnchor("default", "ana", 1)->empty());
  EXPECT_EQ(store_->PutAnchor("default", "ana", drawn).error().code, Code::kConflict);
  EXPECT_EQ(store_->PutAnchor("default", "ben", std::span(drawn).last(1)).error().code,
            Code::kConflict);
}

TEST_F(FactStoreTest, SettingsKeepTheirKvSideBySide) {
  const Hash128 other{8, 8};
  const int64_t id = EpisodeOf(Add("a")).id;
  const Episode episode = store_->GetEpisodes(std::span(&id, 1))->front();
  ASSERT_OK(store_->PutKv(kModel, Encode(episode, {0, 1}, {}, 1)));
  EXPECT_EQ(*store_->CountPending(kModel, other), 1U);
  ASSERT_OK(store_->PutKv(kModel, Encode(episode, {0, 2}, {}, 1, other)));
  EXPECT_TRUE(HasKv(id) && HasKv(id, other));
  EXPECT_EQ(*store_->CountPending(kModel, kEncoding) + *store_->CountPending(kModel, other), 0U);
  EXPECT_EQ(Garbage(), Keys{});
  EXPECT_EQ(store_->Stats(kModel)->episodes_encoded, 1U);
  Add("b");  // the episode grows
  EXPECT_EQ(*store_->CountPending(kModel, kEncoding), 1U);
  EXPECT_EQ(*store_->CountPending(kModel, other), 1U);
  UpdateText(episode.facts.front().id, "changed");
  EXPECT_EQ(Garbage(), (Keys{1, 2}));
}

TEST_F(FactStoreTest, ADroppedSettingLeavesGarbageOnly) {
  const KvSetting first{kModel, kEncoding, "first", {0, 100}};
  const KvSetting second{kModel, {8, 8}, "second", {0, 100}};
  const std::string id = Add("a");
  PutKv(id, 1);
  ASSERT_OK(store_->UseSetting(first));
  clock_.Advance(10);
  ASSERT_OK(store_->UseSetting(second));
  const auto settings = store_->Settings().value();
  ASSERT_EQ(settings.size(), 2U);
  EXPECT_EQ(settings[0].label, "second");
  EXPECT_EQ(settings[1].episodes, 1U);
  EXPECT_EQ(settings[0].used_ms, settings[1].used_ms + 10);
  EXPECT_TRUE(*store_->IsReferenced({0, 100}));
  EXPECT_EQ(*store_->KeysOf(kModel, first.encoding),
            (std::vector<Hash128>{{0, 1}}));  // the header is of both
  ASSERT_OK(store_->DropSetting(kModel, first.encoding));
  EXPECT_EQ(Garbage(), Keys{1});
  EXPECT_EQ(*store_->KeysOf(kModel, second.encoding), (std::vector<Hash128>{{0, 100}}));
  ASSERT_OK(store_->DropSetting(kModel, second.encoding));
  EXPECT_EQ(Garbage(), (Keys{1, 100}));
  EXPECT_TRUE(store_->Settings()->empty());
  EXPECT_EQ(*store_->CountPending(kModel, kEncoding), 1U);  // begins anew
  ASSERT_OK(store_->UseSetting(first));
  EXPECT_EQ(Garbage(), Keys{1});
}

}  // namespace
}  // namespace inferscale
