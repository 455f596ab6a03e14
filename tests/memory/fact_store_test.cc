// Facts: what is kept, found, changed, deleted.
#include <cmath>
#include <limits>
#include <utility>

#include "fact_store_testing.h"

namespace inferscale {
namespace {

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

TEST_F(FactStoreTest, CountsUsersAndEntities) {
  Add(MakeFact("a", {"default", "ana", "bot", "r1"}));
  Add(MakeFact("b", {"default", "ana", "", "r2"}));
  Add(MakeFact("c", {"default", "", "bot", ""}));
  Add(MakeFact("d", {"other", "ben", "", ""}));
  const Filter filter = Filter::Parse(R"({"agent_id": "*"})").value();
  EXPECT_EQ(store_->Count({.scope = kAnyone}).value(), 3U);
  EXPECT_EQ(store_->Count({.scope = kAnyone, .filter = &filter, .limit = 1}).value(), 2U);
  EXPECT_EQ(store_->Users(kAnyone).value(), (Strings{"", "ana"}));
  EXPECT_EQ(store_->Users({"default", "", "", "r2"}).value(), Strings{"ana"});
  EXPECT_EQ(store_->Users({"none", "", "", ""}).value(), Strings{});
  const auto found = store_->Entities("default").value();
  Strings entities;
  for (const FactStore::Entity& entity : found) {
    entities.push_back(fmt::format("{} {} {}", entity.type, entity.name, entity.facts));
  }
  EXPECT_EQ(entities, (Strings{"user ana 2", "agent bot 2", "run r1 1", "run r2 1"}));
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

TEST_F(FactStoreTest, ChangesAreTold) {
  Strings told;
  options_.on_change = [&](const std::string& tenant, const std::string& user) {
    told.push_back(tenant + "/" + user);
  };
  Reopen();
  const auto news = [&] { return std::exchange(told, {}); };
  const std::string id = Add("a");
  Fact fact = MakeFact("b", {"t2", "ben", "", ""});
  fact.expires_ms = clock_.NowMs() + 100;
  Add(fact);
  EXPECT_EQ(news(), Strings{});  // nothing is known yet of what is new
  UpdateText(id, "c");
  EXPECT_EQ(news(), Strings{"default/ana"});
  clock_.Advance(100);
  ASSERT_OK(store_->DeleteExpired());
  EXPECT_EQ(news(), Strings{"t2/ben"});
  Delete(id);
  EXPECT_EQ(news(), Strings{"default/ana"});
  Delete(id);
  EXPECT_EQ(news(), Strings{});
  Add("d");
  ASSERT_OK(store_->DeleteScope({"default", "", "", ""}));
  EXPECT_EQ(news(), Strings{"default/ana"});
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
  EXPECT_EQ(store_->WithoutVector(other, 1)->size(), 1U);
  EXPECT_EQ(store_->WithoutVector(other, 9)->size(), 2U);
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

}  // namespace
}  // namespace inferscale
