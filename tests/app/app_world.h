// An application over toy models, in a folder of its own.
#ifndef INFERSCALE_TESTS_APP_APP_WORLD_H_
#define INFERSCALE_TESTS_APP_APP_WORLD_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "toy_models.h"

namespace inferscale {

// Names of the files below a folder that have these bytes; looks without the code under test.
inline std::vector<std::string> FilesWith(const std::filesystem::path& dir,
                                          const std::string& needle) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    if (bytes.find(needle) != std::string::npos) out.push_back(entry.path().filename().string());
  }
  return out;
}

// A text as the token ids of a KV record.
inline std::string AsTokenIds(const std::string& text) {
  std::string bytes;
  for (const char c : text) {
    const Token id = static_cast<uint8_t>(c);
    bytes.append(reinterpret_cast<const char*>(&id), sizeof(id));
  }
  return bytes;
}

class AppTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           ("inferscale-app-" + std::to_string(getpid()) + "-" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(dir_);
    Reopen();
  }
  void TearDown() override {
    app_.reset();
    std::filesystem::remove_all(dir_);
  }

  AppOptions Options() {
    AppOptions options;
    options.data_dir = dir_.string();
    options.episode_facts = 6;
    options.window = window_;
    options.arena_bytes = 16 << 20;
    options.system = "sys";
    return options;
  }

  void Reopen(const std::string& weights = "toy v1") {
    app_.reset();
    auto opened = OpenApp(Options(), ToyModels(log_, weights));
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    app_ = std::move(*opened);
  }

  static Fact Make(const std::string& text, const std::string& user = "ana",
                   const std::string& run = "r1") {
    Fact fact;
    fact.scope.user = user;
    fact.scope.run = run;
    fact.text = text;
    return fact;
  }

  std::vector<std::string> AddMany(int count, const std::string& word = "topic",
                                   const std::string& user = "ana") {
    std::vector<Fact> facts;
    for (int i = 0; i < count; ++i) {
      facts.push_back(Make(word + " number" + std::to_string(i) + " is remembered", user));
    }
    auto added = app_->Add(facts);
    EXPECT_TRUE(added.has_value()) << added.error().message;
    std::vector<std::string> ids;
    for (const AddResult& result : *added) ids.push_back(result.id);
    return ids;
  }

  Answer Ask(const std::string& question, MemoryMode mode = MemoryMode::kKv, uint32_t facts = 12,
             uint32_t plain = 0, const std::string& user = "ana") {
    AskRequest request;
    request.scope.user = user;
    request.question = question;
    request.mode = mode;
    request.compose.facts = facts;
    request.compose.plain_last = plain;
    auto answer = app_->Ask(request, nullptr);
    EXPECT_TRUE(answer.has_value()) << (answer ? "" : answer.error().message);
    return answer.value_or(Answer{});
  }

  EncodeProgress Encode() {
    auto progress = app_->EncodePending(nullptr, {});
    EXPECT_TRUE(progress.has_value()) << (progress ? "" : progress.error().message);
    EXPECT_EQ(*app_->PendingEpisodes(), 0U);
    return progress.value_or(EncodeProgress{});
  }

  bool OnDisk(const std::string& needle) { return !FilesWith(dir_, needle).empty(); }

  static size_t Injected(const Answer& answer) {
    return static_cast<size_t>(std::count_if(answer.facts.begin(), answer.facts.end(),
                                             [](const UsedFact& f) { return f.injected; }));
  }

  std::filesystem::path dir_;
  WindowStrategy window_{WindowKind::kWindow, {4}};
  std::shared_ptr<ToyLog> log_ = std::make_shared<ToyLog>();
  std::unique_ptr<App> app_;
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_APP_APP_WORLD_H_
