// The two walks over toy models: what is remembered is found, injected where there is KV, computed
// where there is none, and gone when it is deleted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "app_world.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

TEST_F(AppTest, KvReadsTheSameTokensAsText) {
  AddMany(20);
  const Answer before = Ask("number7");
  EXPECT_EQ(before.facts.size(), 12U);
  EXPECT_EQ(Injected(before), 0U);
  Encode();
  const Answer kv = Ask("number7");
  const Answer text = Ask("number7", MemoryMode::kText);
  EXPECT_EQ(Injected(kv), 12U);
  EXPECT_EQ(kv.text, text.text);
  EXPECT_EQ(text.stats.injected_tokens, 0U);
  EXPECT_EQ(kv.stats.injected_tokens + kv.stats.prefilled_tokens, text.stats.prefilled_tokens);
  EXPECT_EQ(log_->wrong_rows, 0U);
  // The fact that was asked for is in the last episode.
  bool near_the_end = false;
  for (size_t i = 6; i < 12; ++i)
    near_the_end |= kv.facts[i].fact.text.find("number7 ") != std::string::npos;
  EXPECT_TRUE(near_the_end);
}

TEST_F(AppTest, TheLastFactsAreComputed) {
  AddMany(20);
  Encode();
  const Answer answer = Ask("number7", MemoryMode::kKv, 12, 5);
  ASSERT_EQ(answer.facts.size(), 12U);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(answer.facts[i].injected, i < 7) << i;
}

TEST_F(AppTest, NoMemoryMeansNone) {
  AddMany(6);
  const Answer answer = Ask("number1", MemoryMode::kNone);
  EXPECT_TRUE(answer.facts.empty());
  EXPECT_EQ(answer.stats.injected_tokens, 0U);
  EXPECT_EQ(Ask("number1", MemoryMode::kKv, 0).facts.size(), 0U);
}

TEST_F(AppTest, AnOpenEpisodeKeepsItsKvWhileItGrows) {
  AddMany(4);
  Encode();
  ASSERT_TRUE(app_->Add(std::vector<Fact>{Make("topic number77 came later")}).has_value());
  const Answer answer = Ask("topic");
  EXPECT_EQ(answer.facts.size(), 5U);
  EXPECT_EQ(Injected(answer), 4U);
  EXPECT_FALSE(answer.facts.back().injected);
  Encode();
  EXPECT_EQ(Injected(Ask("topic")), 5U);
  EXPECT_EQ(log_->wrong_rows, 0U);
}

TEST_F(AppTest, DeletedIsGoneEverywhere) {
  AddMany(12);
  const std::string canary = "zanzibar-canary-4711";
  auto added = app_->Add(std::vector<Fact>{Make("topic secret " + canary + " of mine")});
  ASSERT_TRUE(added.has_value());
  AddMany(12, "later");
  Encode();
  ASSERT_TRUE(OnDisk(canary));
  ASSERT_TRUE(OnDisk(AsTokenIds(canary)));  // else the end of this test would prove nothing

  auto deleted = app_->Delete("default", std::vector<std::string>{added->front().id});
  ASSERT_TRUE(deleted.has_value());
  EXPECT_EQ(deleted->facts, 1U);
  for (const UsedFact& used : Ask("topic secret canary").facts) {
    EXPECT_EQ(used.fact.text.find(canary), std::string::npos);
  }
  Encode();
  ASSERT_TRUE(app_->Compact(false).has_value());
  EXPECT_FALSE(OnDisk(canary));
  EXPECT_FALSE(OnDisk(AsTokenIds(canary)));
  EXPECT_EQ(log_->wrong_rows, 0U);
}

TEST_F(AppTest, WhatStoodInAWindowIsEncodedAgain) {
  const std::vector<std::string> ids = AddMany(18);
  Encode();
  // Fact 5 is the last of episode 1 and stands in the window of episode 2.
  ASSERT_TRUE(app_->Delete("default", std::vector<std::string>{ids[5]}).has_value());
  EXPECT_EQ(*app_->PendingEpisodes(), 2U);
  Encode();
  EXPECT_EQ(Injected(Ask("topic")), 12U);
}

TEST_F(AppTest, ADeletedAnchorFactTakesAllKvBehindIt) {
  window_ = {WindowKind::kAnchor, {4}};
  Reopen();
  const std::vector<std::string> ids = AddMany(24);
  Encode();
  const auto anchor = app_->facts().GetAnchor("default", "ana", 4);
  ASSERT_TRUE(anchor.has_value());
  ASSERT_EQ(anchor->size(), 4U);
  ASSERT_TRUE(app_->Delete("default", std::vector<std::string>{anchor->front().id}).has_value());
  EXPECT_EQ(*app_->PendingEpisodes(), 4U);
  Encode();
  EXPECT_EQ(app_->facts().GetAnchor("default", "ana", 4)->size(), 4U);
}

TEST_F(AppTest, SeveralWindowsGiveOneRecord) {
  window_ = {WindowKind::kAnchor, {3, 5}};
  Reopen();
  const std::vector<std::string> ids = AddMany(24);
  Encode();
  EXPECT_EQ(*app_->PendingEpisodes(), 0U);
  const AppStats stats = app_->Stats().value();
  EXPECT_EQ(stats.kv->records, 1 + stats.facts.episodes);  // and the header's
  EXPECT_EQ(Injected(Ask("topic")), 12U);
  EXPECT_EQ(log_->wrong_rows, 0U);
  // A fact of either window takes the KV behind it along.
  const auto anchors = app_->facts().GetAnchor("default", "ana", 8).value();
  ASSERT_EQ(anchors.size(), 8U);
  ASSERT_TRUE(app_->Delete("default", std::vector<std::string>{anchors[1].id}).has_value());
  const uint64_t behind_first = *app_->PendingEpisodes();
  EXPECT_GT(behind_first, 1U);
  Encode();
  ASSERT_TRUE(app_->Delete("default", std::vector<std::string>{anchors[6].id}).has_value());
  EXPECT_GT(*app_->PendingEpisodes(), 1U);
  Encode();
  EXPECT_EQ(Injected(Ask("topic")), 12U);
}

TEST_F(AppTest, AnUpdateChangesAnswersAndKv) {
  const std::vector<std::string> ids = AddMany(6);
  Encode();
  FactUpdate update;
  update.text = "topic number3 has changed its mind";
  auto updated = app_->Update("default", ids[3], update);
  ASSERT_TRUE(updated.has_value()) << updated.error().message;
  EXPECT_EQ(updated->version, 2U);
  const Answer before = Ask("number3");
  EXPECT_EQ(Injected(before), 0U);
  Encode();
  const Answer after = Ask("number3");
  EXPECT_EQ(Injected(after), 6U);
  EXPECT_EQ(before.text, after.text);
  EXPECT_EQ(log_->wrong_rows, 0U);
}

TEST_F(AppTest, AnotherModelInjectsNothingStale) {
  AddMany(12);
  Encode();
  Reopen("toy v2");
  EXPECT_EQ(*app_->PendingEpisodes(), 2U);
  EXPECT_EQ(Injected(Ask("topic")), 0U);
  Encode();
  EXPECT_EQ(Injected(Ask("topic")), 12U);
  Reopen("toy v1");
  EXPECT_EQ(*app_->PendingEpisodes(), 0U);
  EXPECT_EQ(Injected(Ask("topic")), 12U);
  window_ = {WindowKind::kIsolated, {}};
  Reopen("toy v1");
  EXPECT_EQ(*app_->PendingEpisodes(), 2U);
}

TEST_F(AppTest, SettingsDoNotTakeEachOthersKv) {
  AddMany(12);
  const WindowStrategy first = window_;
  const WindowStrategy second{WindowKind::kIsolated, {}};
  Encode();
  window_ = second;
  Reopen();
  EXPECT_EQ(*app_->PendingEpisodes(), 2U);
  Encode();
  auto kept = app_->Compact(false);
  ASSERT_TRUE(kept.has_value()) << kept.error().message;
  ASSERT_EQ(kept->unused.size(), 1U);
  EXPECT_EQ(kept->unused[0].label, "toy, " + first.ToString());
  EXPECT_EQ(kept->unused[0].records, 1U);  // the header and the first episode are of both
  EXPECT_GT(kept->unused[0].bytes, 0U);
  for (int turn = 0; turn < 3; ++turn) {
    window_ = turn % 2 == 0 ? first : second;
    Reopen();
    EXPECT_EQ(*app_->PendingEpisodes(), 0U);
    EXPECT_EQ(Injected(Ask("topic")), 12U);
  }
  auto dropped = app_->Compact(true);
  ASSERT_TRUE(dropped.has_value());
  ASSERT_EQ(dropped->unused.size(), 1U);
  EXPECT_EQ(dropped->unused[0].label, "toy, " + second.ToString());
  EXPECT_EQ(*app_->PendingEpisodes(), 0U);
  EXPECT_EQ(Injected(Ask("topic")), 12U);
  EXPECT_EQ(app_->Stats()->kv->records, 3U);
  window_ = second;
  Reopen();
  EXPECT_EQ(*app_->PendingEpisodes(), 2U);
}

TEST_F(AppTest, ACompactionWithoutAModelKeepsTheHeader) {
  AddMany(12);
  Encode();
  Reopen("toy v2");  // put to use last, though nothing was encoded
  app_.reset();
  auto opened = OpenApp(Options(), Models{});
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  auto kept = (*opened)->Compact(false);
  ASSERT_TRUE(kept.has_value()) << kept.error().message;
  ASSERT_EQ(kept->unused.size(), 1U);
  EXPECT_EQ(kept->unused[0].records, 3U);
  opened->reset();
  const uint64_t before = log_->encoded_tokens;
  Reopen();
  Reopen("toy v2");
  EXPECT_EQ(log_->encoded_tokens, before);
  app_.reset();
  opened = OpenApp(Options(), Models{});
  EXPECT_EQ((*opened)->Compact(true)->unused.size(), 1U);
  EXPECT_EQ((*opened)->Stats()->kv->records, 1U);
  EXPECT_TRUE(*(*opened)->Verify());
}

TEST_F(AppTest, AConversationIsOfOneUser) {
  AddMany(6, "topic", "ana");
  AddMany(6, "topic", "bob");
  auto conversation = app_->StartConversation();
  AskRequest request;
  request.scope.user = "ana";
  request.question = "topic";
  ASSERT_TRUE(conversation->Ask(request, nullptr).has_value());
  request.scope.user = "bob";
  EXPECT_EQ(conversation->Ask(request, nullptr).error().code, Code::kInvalid);
  request.scope = {"acme", "ana", {}, {}};
  EXPECT_EQ(conversation->Ask(request, nullptr).error().code, Code::kInvalid);
}

TEST_F(AppTest, LostKvIsComputedAndComesBack) {
  AddMany(12);
  Encode();
  const std::string expected = Ask("topic").text;
  app_.reset();
  fs::remove_all(dir_ / "kv");
  Reopen();
  const Answer answer = Ask("topic");
  EXPECT_EQ(answer.text, expected);
  EXPECT_EQ(Injected(answer), 0U);
  EXPECT_GT(app_->Stats()->stale_kv, 0U);
  EXPECT_EQ(*app_->PendingEpisodes(), 2U);
  Encode();
  EXPECT_EQ(Injected(Ask("topic")), 12U);
}

TEST_F(AppTest, AFlippedByteIsNeverInjected) {
  AddMany(12);
  Encode();
  const std::string expected = Ask("topic").text;
  const unsigned seed = std::random_device{}();
  std::mt19937_64 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (int round = 0; round < 10; ++round) {
    app_.reset();
    std::vector<fs::path> segments;
    for (const auto& entry : fs::recursive_directory_iterator(dir_ / "kv")) {
      if (entry.path().extension() == ".seg" && entry.file_size() > 0) {
        segments.push_back(entry.path());
      }
    }
    ASSERT_FALSE(segments.empty());
    std::fstream file(segments[random() % segments.size()],
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(0, std::ios::end);
    const auto at = static_cast<std::streamoff>(random() % static_cast<uint64_t>(file.tellg()));
    file.seekg(at);
    const char byte = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(byte ^ (1 << (random() % 8))));
    file.close();
    Reopen();
    EXPECT_EQ(Ask("topic").facts.size(), 12U);  // whatever is damaged is computed
    EXPECT_EQ(log_->wrong_rows, 0U);
    Encode();
    EXPECT_EQ(Injected(Ask("topic")), 12U);
    EXPECT_EQ(Ask("topic").text, expected);
  }
}

TEST_F(AppTest, TenantsAndUsersDoNotMeet) {
  AddMany(6, "topic", "ana");
  AddMany(6, "topic", "bob");
  Fact other = Make("topic number1 of another tenant");
  other.scope.tenant = "acme";
  ASSERT_TRUE(app_->Add(std::vector<Fact>{other}).has_value());
  Encode();
  for (const UsedFact& used : Ask("topic number1").facts) {
    EXPECT_EQ(used.fact.scope.user, "ana");
    EXPECT_EQ(used.fact.scope.tenant, "default");
  }
}

TEST_F(AppTest, AFailedEncodingIsTriedAgainLater) {
  AddMany(6);
  log_->fail_encode = true;
  auto progress = app_->EncodePending(nullptr, {});
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->failed, 1U);
  EXPECT_EQ(Injected(Ask("topic")), 0U);  // answered all the same
}

TEST_F(AppTest, AnEncodingThatIsStoppedLosesNothing) {
  AddMany(60);
  std::stop_source stop;
  log_->on_encode = [&, calls = 0](const std::stop_token&) mutable {
    if (++calls == 2) stop.request_stop();
  };
  auto progress = app_->EncodePending(nullptr, stop.get_token());
  ASSERT_TRUE(progress.has_value()) << progress.error().message;
  EXPECT_LT(progress->episodes_done, 10U);
  EXPECT_EQ(progress->failed, 0U);
  EXPECT_EQ(*app_->PendingEpisodes(), 10 - progress->episodes_done);
  log_->on_encode = nullptr;
  Encode();  // at once: it was no failure
  EXPECT_EQ(Injected(Ask("topic")), 12U);
  EXPECT_EQ(log_->wrong_rows, 0U);
}

TEST_F(AppTest, TheBackgroundEncodesAUsersEpisodesTogether) {
  std::vector<Fact> facts;
  for (int run = 0; run < 4; ++run) {
    for (int user = 0; user < 6; ++user) {
      Fact& fact = facts.emplace_back();
      fact.scope = {"default", fmt::format("user {}", user), "", fmt::format("run {}", run)};
      fact.text = fmt::format("user {} said {}", user, run);
    }
  }
  ASSERT_TRUE(app_->Add(facts).has_value());
  std::atomic<int> encodings{0};
  log_->on_encode = [&](const std::stop_token&) { ++encodings; };
  app_->StartBackgroundEncoding();
  for (int i = 0; i < 200 && *app_->PendingEpisodes() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(*app_->PendingEpisodes(), 0U);
  EXPECT_EQ(encodings, 6);
  app_.reset();
  log_->on_encode = nullptr;
}

// Others' additions are no reason to leave a user's open episode for later.
TEST_F(AppTest, AnOpenEpisodeIsEncodedHoweverMuchOthersAdd) {
  const auto add = [&](const std::string& user, int number) {
    Fact fact;
    fact.scope.user = user;
    fact.text = fmt::format("{} said {}", user, number);
    ASSERT_TRUE(app_->Add({&fact, 1}).has_value());
  };
  app_->StartBackgroundEncoding();
  add("ana", 0);
  AskRequest request;
  request.scope.user = "ana";
  request.question = "said";
  request.compose.plain_last = 0;
  request.compose.min_kv_tokens = 0;
  for (int i = 0; i < 200; ++i) {
    add("bo", i);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto answer = app_->Ask(request, nullptr);
    ASSERT_TRUE(answer.has_value());
    if (answer->facts.front().injected) return;
  }
  FAIL() << "while others added, nothing was encoded";
}

TEST_F(AppTest, ClosingDoesNotWaitForABatch) {
  AddMany(60);
  // An engine that computes until it is told to stop.
  std::atomic<bool> computing{false};
  log_->on_encode = [&](const std::stop_token& stop) {
    computing = true;
    while (!stop.stop_requested()) std::this_thread::yield();
  };
  app_->StartBackgroundEncoding();
  while (!computing) std::this_thread::yield();
  app_.reset();
  log_->on_encode = nullptr;
  Reopen();
  EXPECT_EQ(*app_->PendingEpisodes(), 10U);
  Encode();
}

TEST_F(AppTest, AConversationOnlyGrows) {
  AddMany(30);
  Encode();
  auto conversation = app_->StartConversation();
  std::vector<Token> held;
  std::set<int64_t> rows;
  for (int turn = 0; turn < 4; ++turn) {
    AskRequest request;
    request.scope.user = "ana";
    request.question = "number" + std::to_string(turn * 7);
    request.compose.facts = 6;
    auto answer = conversation->Ask(request, nullptr);
    ASSERT_TRUE(answer.has_value()) << answer.error().message;
    ASSERT_GE(log_->last_prompt.size(), held.size());
    EXPECT_TRUE(std::equal(held.begin(), held.end(), log_->last_prompt.begin()));
    for (const UsedFact& used : answer->facts) {
      EXPECT_TRUE(rows.insert(used.fact.row).second) << "fact " << used.fact.row << " came twice";
    }
    EXPECT_FALSE(answer->facts.empty());
    held = log_->last_prompt;
    for (const char c : answer->text) held.push_back(static_cast<uint8_t>(c));
    held.push_back(kToyEnd);
    EXPECT_EQ(conversation->tokens(), held.size());
  }
  EXPECT_EQ(log_->wrong_rows, 0U);
}

TEST_F(AppTest, AConversationForgetsWhatIsDeletedOrChanged) {
  const std::vector<std::string> ids = AddMany(6, "secret");
  auto conversation = app_->StartConversation();
  AskRequest request;
  request.scope.user = "ana";
  request.question = "secret number3";
  const auto ask = [&] {
    auto answer = conversation->Ask(request, nullptr);
    EXPECT_TRUE(answer.has_value());
    const std::string read(log_->last_prompt.begin(), log_->last_prompt.end());
    return std::pair(answer->restarted, read);
  };
  EXPECT_NE(ask().second.find("number3 "), std::string::npos);
  ASSERT_TRUE(app_->Delete("default", std::vector<std::string>{ids[3]}).has_value());
  const auto [restarted, read] = ask();
  EXPECT_TRUE(restarted);
  EXPECT_EQ(read.find("number3 "), std::string::npos);
  EXPECT_NE(read.find("number4 "), std::string::npos);
  FactUpdate update;
  update.text = "secret number4 is another one now";
  ASSERT_TRUE(app_->Update("default", ids[4], update).has_value());
  EXPECT_NE(ask().second.find("another one now"), std::string::npos);
}

TEST_F(AppTest, AnEpisodeComesWithoutWhatTheFilterKeepsOut) {
  std::vector<Fact> facts;
  for (int i = 0; i < 6; ++i) {
    facts.push_back(Make("topic number" + std::to_string(i)));
    facts.back().metadata = i % 2 == 0 ? R"({"kind": "work"})" : R"({"kind": "home"})";
  }
  ASSERT_TRUE(app_->Add(facts).has_value());
  Encode();
  const auto filter = Filter::Parse(R"({"kind": "work"})");
  ASSERT_TRUE(filter.has_value());
  AskRequest request;
  request.scope.user = "ana";
  request.question = "topic";
  request.filter = &*filter;
  request.compose.plain_last = 0;
  const auto answer = app_->Ask(request, nullptr);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->facts.size(), 3U);
  for (const UsedFact& used : answer->facts) {
    EXPECT_EQ(used.fact.metadata.find("home"), std::string::npos);
  }
  EXPECT_EQ(log_->wrong_rows, 0U);
}

TEST_F(AppTest, BothModesReadTheSamePromptWhenSomeKvIsMissing) {
  AddMany(10);
  Encode();
  AddMany(5, "topic later");
  EXPECT_EQ(Ask("topic").text, Ask("topic", MemoryMode::kText).text);
}

TEST_F(AppTest, AFactIsSomebodys) {
  Fact fact = Make("whose is it?", "");
  fact.scope.run.clear();
  const auto added = app_->Add({&fact, 1});
  ASSERT_FALSE(added.has_value());
  EXPECT_EQ(added.error().code, Code::kInvalid);
}

TEST_F(AppTest, AFullContextBeginsAnew) {
  AddMany(30);
  auto conversation = app_->StartConversation();
  bool restarted = false;
  for (int turn = 0; turn < 20; ++turn) {
    AskRequest request;
    request.scope.user = "ana";
    request.question = std::string(400, 'q') + std::to_string(turn);
    request.compose.facts = 6;
    auto answer = conversation->Ask(request, nullptr);
    ASSERT_TRUE(answer.has_value()) << answer.error().message;
    restarted |= answer->restarted;
  }
  EXPECT_TRUE(restarted);
}

TEST_F(AppTest, ExpiredFactsAreNotTold) {
  Fact fact = Make("topic that has expired");
  fact.expires_ms = SystemClock().NowMs() - 1000;
  ASSERT_TRUE(app_->Add(std::vector<Fact>{fact, Make("topic that stays")}).has_value());
  const Answer answer = Ask("topic");
  ASSERT_EQ(answer.facts.size(), 1U);
  EXPECT_EQ(answer.facts[0].fact.text, "topic that stays");
}

TEST_F(AppTest, AddsAsksAndDeletesWhileEncoding) {
  app_->StartBackgroundEncoding();
  std::vector<std::jthread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      const std::string user = "user" + std::to_string(t);
      for (int round = 0; round < 8; ++round) {
        std::vector<Fact> facts;
        for (int i = 0; i < 7; ++i) {
          facts.push_back(
              Make("round" + std::to_string(round) + " item" + std::to_string(i), user));
        }
        auto added = app_->Add(facts);
        if (!added) ++failures;
        if (!app_->Delete("default", std::vector<std::string>{added->at(1).id})) ++failures;
        AskRequest request;
        request.scope.user = user;
        request.question = "round" + std::to_string(round);
        if (!app_->Ask(request, nullptr)) ++failures;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(failures, 0);
  for (int i = 0; i < 600 && *app_->PendingEpisodes() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(*app_->PendingEpisodes(), 0U);
  EXPECT_EQ(log_->wrong_rows, 0U);
}

}  // namespace
}  // namespace inferscale
