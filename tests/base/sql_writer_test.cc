#include "base/sql_writer.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <semaphore>
#include <stdexcept>
#include <thread>
#include <vector>

namespace inferscale {
namespace {

class SqlWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "inferscale-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    reader_ = SqlDatabase::Open(dir_ / "a.db", {}).value();
    ASSERT_TRUE(reader_->Exec("CREATE TABLE t(a UNIQUE)"));
    writer_.emplace(SqlDatabase::Open(dir_ / "a.db", {}).value());
  }
  void TearDown() override {
    writer_.reset();
    reader_.reset();
    std::filesystem::remove_all(dir_);
  }
  int64_t Committed() { return reader_->QueryInt("SELECT count(*) FROM t").value(); }
  // Grows with every commit.
  size_t LogBytes() const { return std::filesystem::file_size(dir_ / "a.db-wal"); }

  static Status Insert(SqlDatabase& db, int value) {
    return db.Query("INSERT INTO t VALUES(?1)", value).Run();
  }

  // Runs the bodies so that all but the first wait while the first is at work.
  void Together(const std::vector<std::function<void()>>& bodies) {
    std::binary_semaphore begun{0};
    std::binary_semaphore go_on{0};
    std::jthread first([&] {
      EXPECT_TRUE(writer_->Write([&](SqlDatabase&) -> Status {
        begun.release();
        go_on.acquire();
        return {};
      }));
    });
    begun.acquire();
    std::vector<std::jthread> others;
    for (const auto& body : bodies) others.emplace_back([&body] { body(); });
    while (writer_->waiting() < 1 + bodies.size()) std::this_thread::yield();
    go_on.release();
  }

  std::filesystem::path dir_;
  std::unique_ptr<SqlDatabase> reader_;
  std::optional<SqlWriter> writer_;
};

TEST_F(SqlWriterTest, IsDurableForOthersOnReturn) {
  const auto row = writer_->Write([](SqlDatabase& db) -> Result<int64_t> {
    INFERSCALE_TRY(Insert(db, 1));
    return db.LastRow();
  });
  EXPECT_EQ(row.value(), 1);
  EXPECT_EQ(Committed(), 1);
  EXPECT_EQ(writer_->Write([](SqlDatabase& db) { return Insert(db, 1); }).error().code,
            Code::kConflict);
  EXPECT_EQ(Committed(), 1);
}

TEST_F(SqlWriterTest, WhatWaitsIsCommittedTogether) {
  const auto insert = [this](int i) {
    EXPECT_TRUE(writer_->Write([&](SqlDatabase& db) { return Insert(db, i); }));
  };
  const size_t before = LogBytes();
  insert(100);
  const size_t of_one = LogBytes() - before;
  std::vector<std::function<void()>> bodies;
  for (int i = 0; i < 8; ++i) bodies.push_back([&insert, i] { insert(i); });
  Together(bodies);
  EXPECT_EQ(Committed(), 9);
  EXPECT_EQ(LogBytes() - before, 2 * of_one);  // the same pages, once
}

TEST_F(SqlWriterTest, WhoFailsLosesOnlyItsOwn) {
  std::vector<std::function<void()>> bodies;
  for (int i = 0; i < 9; ++i) {
    bodies.push_back([this, i] {
      const auto body = [&](SqlDatabase& db) -> Status {
        INFERSCALE_TRY(Insert(db, i));
        if (i % 3 == 1) return Fail(Code::kInvalid, "no {}", i);
        if (i % 3 == 2) throw std::runtime_error("a bug");
        return {};
      };
      if (i % 3 == 2) {
        EXPECT_THROW((void)writer_->Write(body), std::runtime_error);
      } else {
        EXPECT_EQ(writer_->Write(body).has_value(), i % 3 == 0);
      }
    });
  }
  Together(bodies);
  EXPECT_EQ(Committed(), 3);
  EXPECT_EQ(reader_->QueryInt("SELECT sum(a) FROM t").value(), 0 + 3 + 6);
}

}  // namespace
}  // namespace inferscale
