// Backups of a directory in use, and proofs that what was forgotten is gone.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "../kv/seed.h"
#include "app/backup.h"
#include "app/erasure.h"
#include "app_world.h"
#include "base/sqlite.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

class UpkeepTest : public testing::Test {
 protected:
  void SetUp() override {
    base_ =
        fs::temp_directory_path() / ("inferscale-upkeep-" + std::to_string(getpid()) + "-" +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(base_);
    fs::create_directories(base_);
    app_ = Open(Dir());
  }
  void TearDown() override {
    app_.reset();
    fs::remove_all(base_);
  }

  std::string Dir() const { return (base_ / "data").string(); }
  std::string Copy() const { return (base_ / "copy").string(); }

  std::unique_ptr<App> Open(const std::string& dir) {
    AppOptions options;
    options.data_dir = dir;
    options.arena_bytes = 16 << 20;
    options.system = "sys";
    auto opened = OpenApp(options, ToyModels(log_));
    EXPECT_TRUE(opened.has_value()) << (opened ? "" : opened.error().message);
    return opened ? std::move(*opened) : nullptr;
  }
  static Fact Make(const std::string& text, const std::string& user) {
    Fact fact;
    fact.scope = {"default", user, "", "r1"};
    fact.text = text;
    return fact;
  }
  std::string Add(const std::string& text, const std::string& user = "ana") {
    const Fact fact = Make(text, user);
    return app_->Add({&fact, 1}).value().front().id;
  }
  void Encode() { ASSERT_TRUE(app_->EncodePending(nullptr, {}).has_value()); }
  static Answer Ask(App& app, const std::string& question, const std::string& user = "ana") {
    AskRequest request;
    request.scope.user = user;
    request.question = question;
    request.compose.plain_last = 0;
    auto answer = app.Ask(request, nullptr);
    EXPECT_TRUE(answer.has_value()) << (answer ? "" : answer.error().message);
    return answer.value_or(Answer{});
  }

  fs::path base_;
  std::shared_ptr<ToyLog> log_ = std::make_shared<ToyLog>();
  std::unique_ptr<App> app_;
};

using BackupTest = UpkeepTest;

TEST_F(BackupTest, HasWhatWasAcknowledgedThoughOthersWrite) {
  for (int i = 0; i < 30; ++i) Add(fmt::format("early number{}", i));
  Encode();
  std::mutex mutex;
  std::vector<std::string> acknowledged;
  std::jthread writer([&](const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); ++i) {
      const std::string id = Add(fmt::format("late number{}", i));
      if (i % 7 == 0) (void)app_->EncodePending(nullptr, {});
      if (i % 5 == 0) (void)app_->Delete("default", {{id}});
      if (i % 11 == 0) (void)app_->Compact(false);
      const std::lock_guard lock(mutex);
      if (i % 5 != 0) acknowledged.push_back(id);
    }
  });
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return acknowledged.size();
  };
  while (count() < 20) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (int round = 0; round < 3; ++round) {
    fs::remove_all(Copy());
    std::vector<std::string> before;
    {
      const std::lock_guard lock(mutex);
      before = acknowledged;
    }
    const auto report = BackUp(Dir(), Copy());
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_FALSE(fs::exists(Copy() + ".partial"));
    const auto copy = Open(Copy());
    ASSERT_NE(copy, nullptr);
    EXPECT_GE(copy->Stats()->facts.facts, before.size() + 30);
    for (const std::string& id : before) EXPECT_TRUE(copy->facts().Get("default", id).has_value());
    EXPECT_TRUE(copy->Verify().value());
    const Answer answer = Ask(*copy, "early number7");
    EXPECT_GT(answer.stats.injected_tokens, 0U);
    EXPECT_EQ(copy->Stats()->kv->corrupt_records, 0U);
    ASSERT_TRUE(copy->EncodePending(nullptr, {}).has_value());
  }
  EXPECT_EQ(log_->wrong_rows, 0U);
}

TEST_F(BackupTest, HoldsNothingThatWasDeletedBefore) {
  Add("this stays here");
  const std::string secret = "a secret about the violet harbour";
  const std::string id = Add(secret, "bo");
  Encode();
  ASSERT_TRUE(app_->Delete("default", {{id}}).has_value());
  // Not compacted: the bytes are still in the directory itself.
  EXPECT_FALSE(FilesWith(Dir(), AsTokenIds(secret)).empty());
  ASSERT_TRUE(BackUp(Dir(), Copy()).has_value());
  EXPECT_TRUE(FilesWith(Copy(), secret).empty());
  EXPECT_TRUE(FilesWith(Copy(), AsTokenIds(secret)).empty());
  EXPECT_FALSE(FilesWith(Copy(), AsTokenIds("this stays here")).empty());
}

TEST_F(BackupTest, CopiesOtherFilesAndNoLocks) {
  Add("a fact");
  Encode();
  std::ofstream(Dir() + "/note.txt") << "only here";
  std::ofstream(Dir() + "/kv/some.scales") << "kept too";
  std::ofstream(Dir() + "/kv/other.lock") << "";
  ASSERT_TRUE(SqlDatabase::Open(Dir() + "/keys.db", {}).value()->Exec("CREATE TABLE k(x)"));
  ASSERT_TRUE(BackUp(Dir(), Copy()).has_value());
  EXPECT_EQ(FilesWith(Copy(), "only here"), std::vector<std::string>{"note.txt"});
  EXPECT_EQ(FilesWith(Copy(), "kept too"), std::vector<std::string>{"some.scales"});
  EXPECT_EQ(SqlDatabase::Open(Copy() + "/keys.db", {})
                .value()
                ->QueryInt("SELECT count(*) FROM sqlite_schema WHERE name = 'k'"),
            1);
  EXPECT_FALSE(fs::exists(Copy() + "/kv/other.lock"));
  const auto others = fs::perms::group_all | fs::perms::others_all;
  EXPECT_EQ(fs::status(Copy()).permissions() & others, fs::perms::none);
  for (const auto& entry : fs::recursive_directory_iterator(Copy())) {
    if (!entry.is_regular_file()) continue;
    EXPECT_EQ(entry.status().permissions() & others, fs::perms::none) << entry.path();
  }
}

TEST_F(BackupTest, RefusesWhatWouldDoHarm) {
  Add("a fact");
  EXPECT_EQ(BackUp((base_ / "none").string(), Copy()).error().code, Code::kNotFound);
  EXPECT_FALSE(fs::exists(base_ / "none"));
  EXPECT_EQ(BackUp(Dir(), Dir() + "/inside").error().code, Code::kInvalid);
  EXPECT_EQ(BackUp(Dir(), base_.string()).error().code, Code::kInvalid);
  fs::create_directories(Copy());
  std::ofstream(Copy() + "/mine.txt") << "mine";
  EXPECT_EQ(BackUp(Dir(), Copy()).error().code, Code::kConflict);
  EXPECT_TRUE(fs::exists(Copy() + "/mine.txt"));
  fs::remove(Copy() + "/mine.txt");
  fs::create_directories(Copy() + ".partial");
  EXPECT_EQ(BackUp(Dir(), Copy()).error().code, Code::kConflict);
  fs::remove(Copy() + ".partial");
  EXPECT_TRUE(BackUp(Dir(), Copy() + "/").has_value());
}

using ErasureTest = UpkeepTest;

TEST(Needles, FindWhatAPlainSearchFinds) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  for (int round = 0; round < 30; ++round) {
    std::string text(random.Between<size_t>(0, 3000), ' ');
    for (char& c : text) c = static_cast<char>(random.Between(0, 5));
    Needles needles;
    std::vector<std::string> added;
    for (int i = 0; i < 60; ++i) {
      std::string needle(random.Between<size_t>(1, 14), ' ');
      for (char& c : needle) c = static_cast<char>(random.Between(0, 5));
      if (text.size() > 20 && random.Chance(0.5)) {
        needle = text.substr(random.Between<size_t>(0, text.size() - 1), needle.size());
      }
      const int number = needles.Add(needle);
      if (number == static_cast<int>(added.size())) added.push_back(needle);
      ASSERT_LT(number, static_cast<int>(added.size()));
      EXPECT_TRUE(number < 0 || added[static_cast<size_t>(number)] == needle);
      EXPECT_TRUE(number < 0 || needle.size() >= Needles::kShortest);
    }
    std::vector<bool> hits(needles.size());
    needles.Find(text, hits);
    for (size_t i = 0; i < added.size(); ++i) {
      EXPECT_EQ(hits[i], text.find(added[i]) != std::string::npos);
    }
  }
  Needles needles;
  EXPECT_EQ(needles.Add(std::string(64, 'a')), -1);  // turns up by chance
}

TEST_F(ErasureTest, TheSearchFindsWhatIsThere) {
  const std::string canary = "the canary sings of cobalt ships at dawn";
  Add(canary);
  Encode();
  const Traces traces = app_->facts().FindTraces({"default", "ana", "", ""}).value();
  EXPECT_EQ(traces.facts, 1U);
  EXPECT_EQ(traces.texts, std::vector<std::string>{canary});
  EXPECT_EQ(traces.vectors.size(), 1U);
  EXPECT_EQ(traces.keys.size(), 1U);
  ASSERT_TRUE(app_->DeleteScope({"default", "ana", "", ""}).has_value());
  // Erased, but not compacted: the record is still in its segment.
  const auto left = ProveErasure(Dir(), app_->facts(), traces).value();
  ASSERT_FALSE(left.found_in.empty());
  EXPECT_TRUE(std::any_of(left.found_in.begin(), left.found_in.end(),
                          [](const std::string& file) { return file.ends_with(".seg"); }));
  ASSERT_TRUE(app_->Compact(false).has_value());
  const auto clean = ProveErasure(Dir(), app_->facts(), traces).value();
  EXPECT_TRUE(clean.found_in.empty());
  // Anywhere in a file, also where two readings meet.
  for (const size_t at : {size_t{0}, (size_t{4} << 20) - 13, (size_t{8} << 20) - canary.size() - 1,
                          (size_t{8} << 20) + 5}) {
    std::string bytes(at, '\0');
    bytes += canary;
    std::ofstream(Dir() + "/planted.bin", std::ios::binary) << bytes;
    EXPECT_EQ(ProveErasure(Dir(), app_->facts(), traces)->found_in,
              std::vector<std::string>{"planted.bin"})
        << at;
  }
}

TEST_F(ErasureTest, ForgottenIsGoneFromEveryFile) {
  SCOPED_TRACE(TestSeed());
  Random random(TestSeed());
  std::vector<std::string> canaries;
  const auto canary = [&](size_t bytes) {
    std::string text = "canary";
    while (text.size() < bytes) text += fmt::format(" {}", random.Between(100000, 999999));
    canaries.push_back(text);
    return text;
  };
  for (int i = 0; i < 40; ++i) Add(fmt::format("others stay number{}", i), "bo");
  std::vector<std::string> ids;
  for (const size_t bytes : {40, 60, 300, 3000, 6000, 9000}) ids.push_back(Add(canary(bytes)));
  ids.push_back(Add("yes"));
  FactUpdate update;
  update.text = canary(80);
  ASSERT_TRUE(app_->Update("default", ids[0], update).has_value());
  update = {};
  update.metadata = fmt::format(R"({{"k":"{}"}})", canary(50));
  ASSERT_TRUE(app_->Update("default", ids[1], update).has_value());
  Encode();
  Ask(*app_, "canary");
  const auto report = app_->Forget({"default", "ana", "", ""}, /*verify=*/true);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->erased.facts, 7U);
  EXPECT_GT(report->erased.kv_records, 0U);
  const ErasureProof& proof = *report->proof;
  EXPECT_TRUE(proof.found_in.empty()) << proof.found_in.front();
  EXPECT_EQ(proof.texts, 8U);  // six, an earlier version, metadata
  EXPECT_EQ(proof.short_texts, 1U);
  EXPECT_GE(proof.vectors, 6U);  // the toy's are plain
  EXPECT_GT(proof.keys, 0U);
  EXPECT_GT(proof.files, 3U);
  for (const std::string& text : canaries) {
    const std::string piece = text.substr(0, 30);
    EXPECT_TRUE(FilesWith(Dir(), piece).empty());
    EXPECT_TRUE(FilesWith(Dir(), text.substr(text.size() - 30)).empty());
    EXPECT_TRUE(FilesWith(Dir(), AsTokenIds(piece)).empty());
  }
  EXPECT_EQ(Ask(*app_, "others", "bo").facts.size(), 40U);
  EXPECT_EQ(log_->wrong_rows, 0U);
}

TEST_F(ErasureTest, WhatOthersSayTooIsNoTrace) {
  Add("we both went to the lake in june");
  Add("we both went to the lake in june", "bo");
  const auto report = app_->Forget({"default", "ana", "", ""}, true);
  EXPECT_EQ(report->erased.facts, 1U);
  EXPECT_TRUE(report->proof->found_in.empty());
  EXPECT_GT(report->proof->shared, 0U);
  std::ofstream(Dir() + "/dump.txt") << "we both went to the lake in june";
  EXPECT_TRUE(ProveErasure(Dir(), app_->facts(), {})->found_in.empty());
}

TEST_F(ErasureTest, AnotherProcessLetsItsFileGo) {
  Add("others stay", "bo");
  const std::string text = "held by another one, about the amber tower";
  const auto other = Open(Dir());
  Add(text);
  ASSERT_TRUE(other->EncodePending(nullptr, {}).has_value());
  other->StartBackgroundEncoding();
  const auto report = app_->Forget({"default", "ana", "", ""}, true);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->compacted.files.segments_busy, 0U);
  EXPECT_TRUE(report->proof->found_in.empty()) << report->proof->found_in.front();
  EXPECT_GT(report->proof->keys, 0U);
  EXPECT_TRUE(FilesWith(Dir(), AsTokenIds(text.substr(0, 30))).empty());
  // What the other one knows of bo's is still good, and what it encodes from now on goes elsewhere.
  EXPECT_EQ(Ask(*other, "others", "bo").stats.injected_tokens,
            Ask(*app_, "others", "bo").stats.injected_tokens);
  Add("ana is here again");
  ASSERT_TRUE(other->EncodePending(nullptr, {}).has_value());
  EXPECT_GT(Ask(*app_, "again").stats.injected_tokens, 0U);
}

TEST_F(ErasureTest, SaysWhenAnotherProcessHoldsAFile) {
  Add("others stay", "bo");
  Encode();
  const auto other = Open(Dir());
  Add("held by another one, about the amber tower");
  ASSERT_TRUE(other->EncodePending(nullptr, {}).has_value());
  const auto report = app_->Forget({"default", "ana", "", ""}, true);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->compacted.files.segments_busy, 1U);
  EXPECT_FALSE(report->proof->found_in.empty());
}

}  // namespace
}  // namespace inferscale
