// One at a time encodes or compacts a data directory, and who waits gets its turn.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "app_world.h"
#include "store/env.h"

namespace inferscale {
namespace {

TEST_F(AppTest, ACompactionGetsItsTurn) {
  AddMany(3000);
  app_->StartBackgroundEncoding();
  const auto compacted = app_->Compact(false);
  EXPECT_TRUE(compacted.has_value()) << compacted.error().message;
  auto other = OpenApp(Options(), ToyModels(log_));  // as another process would
  ASSERT_TRUE(other.has_value());
  const auto beside = (*other)->Compact(false);
  EXPECT_TRUE(beside.has_value()) << beside.error().message;
  EXPECT_GT(app_->PendingEpisodes().value_or(0), 0U);  // and not only when all was encoded
}

TEST_F(AppTest, AnEncoderOfAllLetsOthersIn) {
  AddMany(3000);
  std::atomic<bool> going{true};
  std::atomic<bool> begun{false};
  log_->on_encode = [&](const std::stop_token&) {  // 500 times
    begun = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  const std::jthread encoder([&] {
    EXPECT_TRUE(app_->EncodePending([&](const EncodeProgress&) { return going.load(); }, {}));
  });
  while (!begun) std::this_thread::yield();
  EXPECT_TRUE(app_->Compact(false).has_value());
  auto other = OpenApp(Options(), ToyModels(log_));  // as another process would
  ASSERT_TRUE(other.has_value());
  EXPECT_TRUE((*other)->EncodePending(
      [](const EncodeProgress& progress) { return progress.episodes_done == 0; }, {}));
  EXPECT_GT(app_->PendingEpisodes().value_or(0), 0U);
  going = false;
}

TEST_F(AppTest, AnEncoderLetsOthersInBeforeItsBatchEnds) {
  for (int user = 0; user < 10; ++user) AddMany(6, "topic", "user" + std::to_string(user));
  std::unique_ptr<FileLock> turn;  // that of somebody who waits since the first episode
  log_->on_encode = [&](const std::stop_token&) {
    if (turn == nullptr) turn = std::move(*SystemEnv().Lock((dir_ / "encode.turn").string()));
  };
  const auto done = app_->EncodePending(
      [](const EncodeProgress& progress) { return progress.episodes_done == 0; }, {});
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(done->episodes_done, 1U);
}

TEST_F(AppTest, AnEncoderWaitsForAnother) {
  AddMany(3);
  auto lock = SystemEnv().Lock((dir_ / "encode.lock").string());  // as another process would
  ASSERT_TRUE(lock.has_value());
  const std::jthread other([&lock] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    lock->reset();
  });
  const auto done = app_->EncodePending(nullptr, {});
  EXPECT_TRUE(done.has_value()) << done.error().message;
}

}  // namespace
}  // namespace inferscale
