// Exports: what goes out comes back the same, and no damage goes unnoticed.
#include "memory/export.h"

#include <fmt/format.h>

#include "../kv/seed.h"
#include "fact_store_testing.h"

namespace inferscale {
namespace {

// Texts with everything that a line of JSON might stumble over.
std::string RandomText(Random& random) {
  static const std::string kPieces[] = {
      "tea",  " ", "\n",  "\r\n", "\t",   "\"",     "\\",           "é",   "🚲", "{", "}",
      "\x01", ",", "\"}", "null", "漢字", "\u2028", "a long word ", "\x7f"};
  std::string text;
  const int count = random.Between(1, 12);
  for (int i = 0; i < count; ++i)
    text += kPieces[random.Between<size_t>(0, std::size(kPieces) - 1)];
  return text + "x";
}

FactWithHistory RandomFact(Random& random, uint64_t number) {
  FactWithHistory out;
  Fact& fact = out.fact;
  fact.id = fmt::format("id-{}", number);
  fact.scope = {"default", RandomText(random), random.Chance(0.5) ? "" : RandomText(random),
                random.Chance(0.5) ? "" : "run"};
  fact.text = RandomText(random);
  if (random.Chance(0.5)) fact.speaker = RandomText(random);
  if (random.Chance(0.7)) fact.when_ms = random.Between<int64_t>(-9e14, 9e14);
  if (random.Chance(0.3)) fact.metadata = R"({"deep":[{"a":1.5E0},null,-7],"e":1E-3,"u":"é"})";
  fact.version = random.Between<uint32_t>(1, 9);
  fact.created_ms = random.Between<int64_t>(0, 2e12);
  fact.updated_ms = fact.created_ms + random.Between<int64_t>(0, 1e9);
  if (random.Chance(0.3)) fact.expires_ms = int64_t{4} * 1'000'000'000'000;
  for (uint32_t i = random.Between<uint32_t>(0, 3); i > 0; --i) {
    out.history.push_back({fact.id, i, random.Chance(0.5) ? "ADD" : "UPDATE",
                           random.Chance(0.5) ? "" : RandomText(random), RandomText(random),
                           random.Between<int64_t>(0, 2e12)});
  }
  return out;
}

std::string Write(const std::vector<FactWithHistory>& facts) {
  ExportWriter writer;
  std::string out = writer.Begin();
  for (const FactWithHistory& fact : facts) out += writer.Line(fact);
  return out + writer.End();
}

void ExpectSame(const FactWithHistory& a, const FactWithHistory& b) {
  const Fact& x = a.fact;
  const Fact& y = b.fact;
  EXPECT_EQ(x.id, y.id);
  EXPECT_EQ(x.scope, y.scope);
  EXPECT_EQ(x.text, y.text);
  EXPECT_EQ(x.speaker, y.speaker);
  EXPECT_EQ(x.when_ms, y.when_ms);
  EXPECT_EQ(x.version, y.version);
  EXPECT_EQ(x.created_ms, y.created_ms);
  EXPECT_EQ(x.updated_ms, y.updated_ms);
  EXPECT_EQ(x.expires_ms, y.expires_ms);
  EXPECT_EQ(x.metadata, y.metadata);
  ASSERT_EQ(a.history.size(), b.history.size());
  for (size_t i = 0; i < a.history.size(); ++i) {
    EXPECT_EQ(a.history[i].fact_id, b.history[i].fact_id);
    EXPECT_EQ(a.history[i].version, b.history[i].version);
    EXPECT_EQ(a.history[i].event, b.history[i].event);
    EXPECT_EQ(a.history[i].old_text, b.history[i].old_text);
    EXPECT_EQ(a.history[i].new_text, b.history[i].new_text);
    EXPECT_EQ(a.history[i].at_ms, b.history[i].at_ms);
  }
}

std::vector<FactWithHistory> RandomFacts(Random& random, uint64_t count) {
  std::vector<FactWithHistory> facts;
  for (uint64_t i = 0; i < count; ++i) facts.push_back(RandomFact(random, i));
  return facts;
}

TEST(Export, ComesBackTheSame) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 50; ++round) {
    const auto facts = RandomFacts(random, random.Between<uint64_t>(0, 8));
    const std::string content = Write(facts);
    EXPECT_TRUE(LooksLikeExport(content));
    const auto read = ParseExport(content);
    ASSERT_OK(read);
    ASSERT_EQ(read->size(), facts.size());
    for (size_t i = 0; i < facts.size(); ++i) ExpectSame(facts[i], (*read)[i]);
    EXPECT_EQ(Write(*read), content);
  }
}

TEST(Export, NoChangedOrMissingByteGoesUnnoticed) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  const std::string content = Write(RandomFacts(random, 3));
  for (size_t i = 0; i < content.size(); ++i) {
    std::string damaged = content;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << random.Between(0, 7)));
    // The last line break says nothing.
    EXPECT_EQ(ParseExport(damaged).has_value(), false) << "byte " << i;
    EXPECT_EQ(ParseExport(content.substr(0, i)).has_value(), i + 1 == content.size())
        << "cut at " << i;
  }
}

TEST(Export, SaysWhichLineIsWrong) {
  Random random(1);
  const std::string content = Write(RandomFacts(random, 4));
  std::vector<size_t> starts = {0};
  for (size_t i = 0; i < content.size(); ++i) {
    if (content[i] == '\n') starts.push_back(i + 1);
  }
  std::string damaged = content;
  damaged[starts[3] + 9] ^= 1;
  EXPECT_EQ(ParseExport(damaged).error().code, Code::kCorrupt);
  EXPECT_EQ(ParseExport(damaged).error().message, "line 4: it was changed, or is cut off");
  const std::string without_one = content.substr(0, starts[2]) + content.substr(starts[3]);
  EXPECT_EQ(ParseExport(without_one).error().code, Code::kCorrupt);
  EXPECT_NE(ParseExport(without_one).error().message.find("lost, added or moved"),
            std::string::npos);
  const std::string cut = content.substr(0, starts[4]);
  EXPECT_EQ(ParseExport(cut).error().code, Code::kCorrupt);
  EXPECT_NE(ParseExport(cut).error().message.find("line 4: not the last line"), std::string::npos);
  EXPECT_EQ(ParseExport("").error().code, Code::kInvalid);
  EXPECT_EQ(ParseExport("{\"text\":\"chat\"}\n").error().code, Code::kInvalid);
  EXPECT_EQ(ParseExport("{\"inferscale_export\":2}\n").error().code, Code::kUnsupported);
}

// A writer other than ours: checksums right, members wrong.
TEST(Export, MembersAreChecked) {
  const auto with = [](const std::string& line) {
    const std::string body = fmt::format("{{\"inferscale_export\":1}}\n{}\n", line);
    return ParseExport(
        fmt::format("{}{{\"facts\":1,\"xxh3\":\"{}\"}}\n", body, HashBytes(AsBytes(body)).Hex()));
  };
  const std::string rest =
      R"("user":"u","agent":"","run":"","text":"t","speaker":"","when_ms":null,"metadata":{},)"
      R"("version":1,"created_ms":1,"updated_ms":1,"expires_ms":null,"history":[]})";
  EXPECT_OK(with(R"({"id":"a",)" + rest));
  for (const char* wrong : {R"({"id":"",)", R"({"id":7,)", R"({)", R"(["a",)"}) {
    const auto read = with(wrong + rest);
    ASSERT_FALSE(read.has_value()) << wrong;
    EXPECT_EQ(read.error().code, Code::kInvalid);
    EXPECT_EQ(read.error().message.substr(0, 7), "line 2:");
  }
  const auto one = R"({"id":"a",)" + rest;
  EXPECT_FALSE(with(one + "\n" + one).has_value());
}

class RestoreTest : public testing::Test {
 protected:
  void Open(const std::string& name) {
    auto opened = FactStore::Open(clock_, {.path = dir_.File(name)});
    ASSERT_OK(opened);
    store_ = std::move(*opened);
  }
  std::vector<FactWithHistory> All() {
    std::vector<FactWithHistory> out;
    const auto facts = store_->List({.scope = {"default", "", "", ""}, .limit = 10000}).value();
    for (const Fact& fact : facts) {
      out.push_back(
          {fact, store_->History("default", fact.id).value_or(std::vector<HistoryEntry>{})});
    }
    return out;
  }

  TempDir dir_;
  ManualClock clock_{1'700'000'000'000};
  std::unique_ptr<FactStore> store_;
};

TEST_F(RestoreTest, AnotherStoreHasTheSameFactsThen) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  Open("one.db");
  for (int i = 0; i < 40; ++i) {
    const FactWithHistory made = RandomFact(random, 0);
    ASSERT_OK(store_->Add({&made.fact, 1}, {}, kEmbedder));
    clock_.Advance(random.Between(0, 5000));
  }
  for (const FactWithHistory& fact : All()) {
    if (random.Chance(0.3)) {
      FactUpdate update;
      update.text = RandomText(random);
      ASSERT_OK(store_->Update("default", fact.fact.id, update, {}, kEmbedder));
    }
    if (random.Chance(0.2)) ASSERT_OK(store_->Delete("default", {{fact.fact.id}}));
    clock_.Advance(random.Between(0, 5000));
  }
  const auto before = All();
  const auto read = ParseExport(Write(before));
  ASSERT_OK(read);
  Open("two.db");
  const auto restored = store_->Restore(*read, {}, kEmbedder);
  ASSERT_OK(restored);
  EXPECT_TRUE(std::all_of(restored->begin(), restored->end(),
                          [](const AddResult& r) { return r.event == AddEvent::kAdded; }));
  for (int round = 0; round < 2; ++round) {
    const auto after = All();
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < after.size(); ++i) ExpectSame(before[i], after[i]);
    const auto again = store_->Restore(*read, {}, kEmbedder);
    ASSERT_OK(again);
    EXPECT_TRUE(std::all_of(again->begin(), again->end(),
                            [](const AddResult& r) { return r.event == AddEvent::kDuplicate; }));
  }
  ASSERT_OK(store_->Verify());
  EXPECT_EQ(store_->WithoutVector(kEmbedder, 1000)->size(), before.size());
}

TEST_F(RestoreTest, WhatWasDeletedComesBackWithItsPast) {
  Open("one.db");
  const Fact fact = MakeFact("first");
  const std::string id = store_->Add({&fact, 1}, {}, kEmbedder)->front().id;
  const auto before = All();
  ASSERT_OK(store_->Delete("default", {{id}}));
  ASSERT_OK(store_->Restore(before, {}, kEmbedder));
  ASSERT_EQ(All().size(), 1U);
  ExpectSame(All().front(), before.front());
}

TEST_F(RestoreTest, RefusesAsAWhole) {
  Open("one.db");
  std::vector<FactWithHistory> facts = {{MakeFact("one"), {}}, {MakeFact(" "), {}}};
  facts[0].fact.id = "a";
  facts[1].fact.id = "b";
  EXPECT_EQ(store_->Restore(facts, {}, kEmbedder).error().code, Code::kInvalid);
  facts[1].fact.text = "two";
  facts[1].fact.id = "";
  EXPECT_EQ(store_->Restore(facts, {}, kEmbedder).error().code, Code::kInvalid);
  facts[1].fact.id = "b";
  facts[1].history = {{"b", 1, "ADD", "", "\xff", 0}};
  EXPECT_EQ(store_->Restore(facts, {}, kEmbedder).error().code, Code::kInvalid);
  facts[1].history = {};
  EXPECT_TRUE(All().empty());
  ASSERT_OK(store_->Restore(facts, {}, kEmbedder));
  facts[0].fact.id = "c";
  facts[1].fact.scope.tenant = "other";
  EXPECT_EQ(store_->Restore(facts, {}, kEmbedder).error().code, Code::kConflict);
  EXPECT_EQ(All().size(), 2U);
}

}  // namespace
}  // namespace inferscale
