// Additions that are done after their request was answered.
#include "server/add_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <vector>

namespace inferscale {
namespace {

const Scope kAna{"t", "ana", "", ""};
const Scope kBo{"t", "bo", "", ""};

AddQueue::Work Succeeds() {
  return []() -> Result<boost::json::array> { return boost::json::array{1}; };
}

class AddQueueTest : public testing::Test {
 protected:
  AddEventInfo Ended(AddQueue& queue, const std::string& id) {
    while (true) {
      AddEventInfo event = queue.Find("t", id).value();
      if (event.ended_ms) return event;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Work that has begun on return and ends when `gate_` says so.
  std::string PutBlocked(AddQueue& queue, const Scope& scope) {
    std::promise<void> begun;
    std::string id = queue
                         .Put(scope,
                              [&, gate = gate_.get_future().share()] {
                                begun.set_value();
                                gate.wait();
                                return Succeeds()();
                              })
                         .value()
                         .id;
    begun.get_future().wait();
    return id;
  }

  ManualClock clock_{1000};
  std::promise<void> gate_;
};

TEST_F(AddQueueTest, TellsWhatBecameOfThem) {
  AddQueue queue(clock_);
  const AddEventInfo put = queue.Put(kAna, Succeeds()).value();
  EXPECT_EQ(put.state, AddState::kPending);
  EXPECT_EQ(put.created_ms, 1000);
  const AddEventInfo done = Ended(queue, put.id);
  EXPECT_EQ(done.state, AddState::kSucceeded);
  EXPECT_EQ(done.results, boost::json::array{1});
  EXPECT_EQ(queue.Find("other", put.id).error().code, Code::kNotFound);
  EXPECT_EQ(queue.Find("t", "event-0").error().code, Code::kNotFound);
  const auto fails = queue.Put(
      kAna, []() -> Result<boost::json::array> { return Fail(Code::kTransient, "no answer"); });
  const AddEventInfo failed = Ended(queue, fails->id);
  EXPECT_EQ(failed.state, AddState::kFailed);
  EXPECT_EQ(failed.error, "no answer");
  const auto throws =
      queue.Put(kAna, []() -> Result<boost::json::array> { throw std::runtime_error("broken"); });
  EXPECT_EQ(Ended(queue, throws->id).error, "broken");
}

TEST_F(AddQueueTest, IsBounded) {
  AddQueue queue(clock_, /*waiting=*/2, /*ended=*/3);
  const std::string running = PutBlocked(queue, kAna);
  EXPECT_EQ(queue.Find("t", running)->state, AddState::kRunning);
  std::vector<std::string> ids = {running};
  for (int i = 0; i < 2; ++i) ids.push_back(queue.Put(kAna, Succeeds())->id);
  EXPECT_EQ(queue.Put(kAna, Succeeds()).error().code, Code::kExhausted);
  gate_.set_value();
  for (const std::string& id : ids) Ended(queue, id);
  Ended(queue, queue.Put(kAna, Succeeds())->id);
  EXPECT_FALSE(queue.Find("t", ids[0]));  // the oldest is not remembered any more
  EXPECT_TRUE(queue.Find("t", ids[1]));
}

TEST_F(AddQueueTest, WhatIsDeletedMeanwhileDoesNotComeBack) {
  AddQueue queue(clock_);
  const std::string running = PutBlocked(queue, kAna);
  const std::string ana = queue.Put(kAna, Succeeds())->id;
  const std::string bo = queue.Put(kBo, Succeeds())->id;
  queue.Drop({"other", "", "", ""});
  EXPECT_EQ(queue.Find("t", ana)->state, AddState::kPending);
  std::atomic<bool> dropped{false};
  std::thread drops([&] {
    queue.Drop(kAna);
    dropped = true;
  });
  while (queue.Find("t", ana)->state == AddState::kPending) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(dropped);  // it waits for what runs
  gate_.set_value();
  drops.join();
  EXPECT_EQ(queue.Find("t", running)->state, AddState::kSucceeded);
  EXPECT_EQ(queue.Find("t", ana)->state, AddState::kFailed);
  EXPECT_EQ(Ended(queue, bo).state, AddState::kSucceeded);
}

TEST_F(AddQueueTest, EndsWithoutWhatHasNotBegun) {
  std::atomic<bool> done{false};
  {
    AddQueue queue(clock_);
    PutBlocked(queue, kAna);
    ASSERT_TRUE(queue.Put(kAna, [&]() -> Result<boost::json::array> {
      done = true;
      return Succeeds()();
    }));
    std::thread([gate = std::move(gate_)]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      gate.set_value();
    }).detach();
  }
  EXPECT_FALSE(done);
}

}  // namespace
}  // namespace inferscale
