// Dialogues that their callers keep: found again by what was said.
#include "app/dialogues.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "toy_models.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

class DialoguesTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ =
        fs::temp_directory_path() / ("inferscale-dialogues-" + std::to_string(getpid()) + "-" +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    AppOptions options;
    options.data_dir = dir_.string();
    options.arena_bytes = 16 << 20;
    options.system = "sys";
    app_ = OpenApp(options, ToyModels(log_)).value();
    dialogues_ = std::make_unique<Dialogues>(*app_, 2);
    for (const char* user : {"ana", "ben"}) {
      Fact fact;
      fact.scope.user = user;
      fact.text = std::string(user) + " likes tea";
      ids_.push_back(app_->Add({&fact, 1}).value().front().id);
    }
  }
  void TearDown() override {
    dialogues_.reset();
    app_.reset();
    fs::remove_all(dir_);
  }

  // The next question of a dialogue whose turns the caller has; they grow by it.
  Answer Ask(std::vector<PastTurn>& turns, const std::string& question,
             const std::string& user = "ana", const Filter* filter = nullptr) {
    AskRequest request;
    request.scope.user = user;
    request.question = question;
    request.before = turns;
    request.filter = filter;
    Answer answer = dialogues_->Ask(request, nullptr).value();
    turns.push_back({question, answer.text});
    return answer;
  }
  std::vector<Token> Prompt() const { return log_->last_prompt; }
  std::string PromptText() const { return app_->engine().Detokenize(log_->last_prompt); }
  static bool BeginsWith(const std::vector<Token>& whole, const std::vector<Token>& first) {
    return whole.size() >= first.size() && std::equal(first.begin(), first.end(), whole.begin());
  }

  fs::path dir_;
  std::shared_ptr<ToyLog> log_ = std::make_shared<ToyLog>();
  std::unique_ptr<App> app_;
  std::unique_ptr<Dialogues> dialogues_;
  std::vector<std::string> ids_;
};

TEST_F(DialoguesTest, WhatWasReadIsNotReadAgain) {
  std::vector<PastTurn> turns;
  EXPECT_EQ(Ask(turns, "what does ana like").facts.size(), 1U);
  const std::vector<Token> first = Prompt();
  const Answer second = Ask(turns, "and what else");
  EXPECT_TRUE(BeginsWith(Prompt(), first));
  EXPECT_TRUE(second.facts.empty());  // it is in the prompt already
  EXPECT_FALSE(second.restarted);
  const std::vector<Token> held = Prompt();
  Ask(turns, "thanks");
  EXPECT_TRUE(BeginsWith(Prompt(), held));
  EXPECT_EQ(dialogues_->size(), 1U);
}

TEST_F(DialoguesTest, AnotherDialogueIsReadWhole) {
  std::vector<PastTurn> turns;
  Ask(turns, "what does ana like");
  std::vector<PastTurn> edited = turns;
  edited.back().assistant = "coffee";
  const Answer answer = Ask(edited, "and what else");
  EXPECT_EQ(answer.facts.size(), 1U);
  EXPECT_NE(PromptText().find("coffee"), std::string::npos);
}

TEST_F(DialoguesTest, AnotherUsersWordsFindNothing) {
  std::vector<PastTurn> turns;
  Ask(turns, "what does ana like");
  std::vector<PastTurn> copied = turns;
  const Answer answer = Ask(copied, "and what else", "ben");
  ASSERT_EQ(answer.facts.size(), 1U);
  EXPECT_EQ(PromptText().find("ana likes tea"), std::string::npos);
  // It is still there for whom it is.
  EXPECT_TRUE(Ask(turns, "and what else").facts.empty());
}

TEST_F(DialoguesTest, ADeletedFactIsNotReadOn) {
  std::vector<PastTurn> turns;
  Ask(turns, "what does ana like");
  ASSERT_TRUE(app_->Delete("default", std::span(ids_).first(1)));
  const Answer answer = Ask(turns, "and what else");
  EXPECT_TRUE(answer.restarted);
  EXPECT_EQ(PromptText().find("ana likes tea"), std::string::npos);
  EXPECT_NE(PromptText().find("what does ana like"), std::string::npos);  // the client said it
}

TEST_F(DialoguesTest, TheOldestIsForgotten) {
  std::vector<std::vector<PastTurn>> dialogues(3);
  for (auto& turns : dialogues) Ask(turns, "question " + std::to_string(&turns - &dialogues[0]));
  EXPECT_EQ(dialogues_->size(), 2U);
  EXPECT_TRUE(Ask(dialogues[2], "more").facts.empty());
  EXPECT_EQ(Ask(dialogues[0], "more").facts.size(), 1U);  // composed anew
}

TEST_F(DialoguesTest, AFilterStandsByItself) {
  std::vector<PastTurn> turns;
  const Filter filter = Filter::Parse(R"({"user_id": "ana"})").value();
  Ask(turns, "what does ana like", "ana", &filter);
  EXPECT_EQ(dialogues_->size(), 0U);
  EXPECT_EQ(Ask(turns, "and what else", "ana", &filter).facts.size(), 1U);
}

}  // namespace
}  // namespace inferscale
