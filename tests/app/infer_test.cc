// Facts that the model draws from messages, over a model whose answers are told.
#include <gtest/gtest.h>

#include "app_world.h"

namespace inferscale {
namespace {

using InferTest = AppTest;

TEST_F(InferTest, FactsAreDrawnFromMessages) {
  const std::string old = app_->Add(std::vector{Make("Ana lives in Rome")}).value()[0].id;
  log_->answers = {R"({"facts": [{"text": "Ana lives in Lisbon", "replaces": 1},
                                 {"text": "Ana has a dog", "replaces": null}]})"};
  Fact message = Make("I left Rome, Ana said", "ana", "r2");
  message.speaker = "Ana";
  message.when_ms = 1'715'174'160'000;
  message.metadata = R"({"from":"chat"})";
  const auto inferred = app_->AddInferred({&message, 1});
  ASSERT_TRUE(inferred) << inferred.error().message;
  ASSERT_EQ(inferred->size(), 2U);
  const InferredFact& updated = inferred->at(0);
  EXPECT_EQ(updated.event, InferEvent::kUpdated);
  EXPECT_EQ(updated.previous, "Ana lives in Rome");
  EXPECT_EQ(updated.fact.id, old);
  EXPECT_EQ(updated.fact.version, 2U);
  EXPECT_EQ(updated.fact.when_ms, message.when_ms);
  const InferredFact& added = inferred->at(1);
  EXPECT_EQ(added.event, InferEvent::kAdded);
  EXPECT_EQ(added.fact.text, "Ana has a dog");
  EXPECT_EQ(added.fact.speaker, "");
  EXPECT_EQ(added.fact.scope, message.scope);
  EXPECT_EQ(added.fact.metadata, message.metadata);
  EXPECT_EQ(*app_->facts().Count({.scope = {}}), 2U);
}

TEST_F(InferTest, ManyMessagesAreReadInTurn) {
  std::vector<Fact> messages;
  for (int i = 0; i < 20; ++i) messages.push_back(Make("message" + std::to_string(i)));
  log_->answers = {R"({"facts": [{"text": "from the first", "replaces": null}]})",
                   R"({"facts": [{"text": "From the first.", "replaces": null}]})"};
  const auto inferred = app_->AddInferred(messages);
  ASSERT_TRUE(inferred) << inferred.error().message;
  ASSERT_EQ(inferred->size(), 2U);
  EXPECT_EQ(inferred->at(1).event, InferEvent::kDuplicate);
  EXPECT_EQ(inferred->at(1).fact.id, inferred->at(0).fact.id);
  EXPECT_TRUE(log_->answers.empty());
  // One that is as long as several stands alone, and what can't be asked at all is refused.
  messages.assign(1, Make(std::string(2000, 'x')));
  log_->answers = {R"({"facts": []})"};
  EXPECT_TRUE(app_->AddInferred(messages));
  messages.assign(1, Make(std::string(5000, 'x')));
  EXPECT_EQ(app_->AddInferred(messages).error().code, Code::kInvalid);
}

TEST_F(InferTest, AnAnswerThatIsNoUseAddsNothing) {
  log_->answers = {"I can't do that"};
  const Fact message = Make("hello");
  EXPECT_EQ(app_->AddInferred({&message, 1}).error().code, Code::kTransient);
  EXPECT_EQ(*app_->facts().Count({.scope = {}}), 0U);
  const std::vector<Fact> two = {Make("a"), Make("b", "bo")};
  EXPECT_EQ(app_->AddInferred(two).error().code, Code::kInvalid);
  EXPECT_TRUE(app_->AddInferred({})->empty());
}

}  // namespace
}  // namespace inferscale
