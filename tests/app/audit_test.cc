// The log of what was put into answers.
#include "app/audit_log.h"
#include "app_world.h"

namespace inferscale {
namespace {

class AuditTest : public AppTest {
 protected:
  void SetUp() override {
    AppTest::SetUp();
    ReopenLog();
  }
  void ReopenLog() {
    log_db_.reset();
    log_db_ = AuditLog::Open((dir_ / "audit.db").string()).value();
  }
  void Put(const std::string& answer, const Scope& scope, uint64_t keep = 100) {
    ASSERT_TRUE(log_db_->Add({.at_ms = 1'700'000'000'000,
                              .answer = answer,
                              .request = "of " + answer,
                              .scope = scope,
                              .mode = "kv",
                              .injected_tokens = 30,
                              .held_tokens = 20,
                              .computed_tokens = 10,
                              .injected = {"id-1", "id-2"},
                              .computed = {"id-3"}},
                             keep));
  }
  std::vector<std::string> Answers(size_t limit = 100, int64_t before = 0,
                                   const std::optional<std::string>& tenant = std::nullopt) {
    std::vector<std::string> out;
    const auto records = log_db_->Last(limit, before, tenant);
    for (const AuditRecord& record : records.value()) out.push_back(record.answer);
    return out;
  }

  using Strings = std::vector<std::string>;
  std::unique_ptr<AuditLog> log_db_;
};

TEST_F(AuditTest, KeepsTheLastAnswersAcrossARestart) {
  for (int i = 0; i < 7; ++i) Put("a" + std::to_string(i), {"t", "ana", "", "r"}, 5);
  ReopenLog();
  EXPECT_EQ(Answers(), (Strings{"a6", "a5", "a4", "a3", "a2"}));
  const AuditRecord newest = log_db_->Last(1, 0, std::nullopt)->front();
  EXPECT_EQ(newest.at_ms, 1'700'000'000'000);
  EXPECT_EQ(newest.request, "of a6");
  EXPECT_EQ(newest.scope.run, "r");
  EXPECT_EQ(newest.injected, (Strings{"id-1", "id-2"}));
  EXPECT_EQ(newest.computed, Strings{"id-3"});
  EXPECT_EQ(newest.injected_tokens + newest.held_tokens + newest.computed_tokens, 60U);
  EXPECT_EQ(Answers(2, newest.number), (Strings{"a5", "a4"}));
  Put("b", {"other", "ana", "", ""}, 5);
  EXPECT_EQ(Answers(100, 0, "other"), Strings{"b"});
  EXPECT_EQ(Answers().size(), 5U);
}

TEST_F(AuditTest, ForgettingAUserTakesItsRowsAndItsName) {
  Put("of ana", {"default", "ana-the-forgotten", "", ""});
  Put("of bo", {"default", "bo", "", ""});
  Put("of another tenant", {"other", "ana-the-forgotten", "", ""});
  Reopen();  // which finds the log
  ASSERT_NE(app_->audit(), nullptr);
  ASSERT_TRUE(app_->Forget({"other", "ana-the-forgotten", "", ""}, false).has_value());
  EXPECT_EQ(Answers(), (Strings{"of bo", "of ana"}));
  EXPECT_TRUE(OnDisk("ana-the-forgotten"));
  const auto report = app_->Forget({"default", "ana-the-forgotten", "", ""}, true);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(Answers(), Strings{"of bo"});
  EXPECT_FALSE(OnDisk("ana-the-forgotten"));
}

TEST_F(AuditTest, OtherFilesAreRefused) {
  log_db_.reset();
  const std::string path = (dir_ / "audit.db").string();
  std::filesystem::remove(path);
  ASSERT_TRUE(SqlDatabase::Open(path, {}).value()->Exec("CREATE TABLE other(x)"));
  const auto log = AuditLog::Open(path);
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace inferscale
