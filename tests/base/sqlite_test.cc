#include "base/sqlite.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace inferscale {
namespace {

class SqliteTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "inferscale-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    auto db = SqlDatabase::Open(Path(), {});
    ASSERT_TRUE(db.has_value()) << db.error().message;
    db_ = *std::move(db);
    ASSERT_TRUE(db_->Exec("CREATE TABLE t(a UNIQUE, b)").has_value());
  }
  void TearDown() override {
    db_.reset();
    std::filesystem::remove_all(dir_);
  }
  std::string Path() const { return (dir_ / "a.db").string(); }
  int64_t Count() { return db_->QueryInt("SELECT count(*) FROM t").value(); }

  std::filesystem::path dir_;
  std::unique_ptr<SqlDatabase> db_;
};

TEST_F(SqliteTest, ValuesComeBack) {
  const std::string text("a\0b", 3);
  const Hash128 hash{0xFEDCBA9876543210, 7};
  SqlQuery query = db_->Query("SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7", int64_t{-5}, text, hash,
                              std::optional<int64_t>(), 2.5, "", uint64_t{0xFEDCBA9876543210});
  ASSERT_TRUE(query.Next().value());
  EXPECT_EQ(query.Int(0), -5);
  EXPECT_EQ(query.Text(1), text);
  EXPECT_EQ(query.Hash(2), hash);
  EXPECT_TRUE(query.Hash(1).IsZero());
  EXPECT_EQ(query.MaybeInt(3), std::nullopt);
  EXPECT_EQ(query.MaybeInt(0), -5);
  EXPECT_EQ(query.Real(4), 2.5);
  EXPECT_FALSE(query.IsNull(5));
  EXPECT_EQ(query.Text(5), "");
  EXPECT_EQ(static_cast<uint64_t>(query.Int(6)), 0xFEDCBA9876543210U);
  EXPECT_FALSE(query.Next().value());
}

TEST_F(SqliteTest, OneStatementMayBeUsedInsideItself) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(db_->Query("INSERT INTO t VALUES(?1, 0)", i).Run());
  int pairs = 0;
  SqlQuery outer = db_->Query("SELECT a FROM t ORDER BY a");
  while (outer.Next().value()) {
    SqlQuery inner = db_->Query("SELECT a FROM t ORDER BY a");
    while (inner.Next().value()) ++pairs;
  }
  EXPECT_EQ(pairs, 9);
}

TEST_F(SqliteTest, WhatIsNotCommittedIsRolledBack) {
  {
    const auto transaction = SqlTransaction::Begin(*db_);
    ASSERT_TRUE(transaction.has_value());
    ASSERT_TRUE(db_->Query("INSERT INTO t VALUES(1, 1)").Run());
  }
  EXPECT_EQ(Count(), 0);
  auto transaction = SqlTransaction::Begin(*db_);
  ASSERT_TRUE(db_->Query("INSERT INTO t VALUES(1, 1)").Run());
  EXPECT_EQ(db_->Changes(), 1);
  ASSERT_TRUE(transaction->Commit());
  EXPECT_EQ(Count(), 1);
}

TEST_F(SqliteTest, ErrorsSayWhatKindTheyAre) {
  EXPECT_EQ(db_->Query("SELECT nothing FROM nowhere").Run().error().code, Code::kInternal);
  ASSERT_TRUE(db_->Query("INSERT INTO t VALUES(1, 1)").Run());
  EXPECT_EQ(db_->Query("INSERT INTO t VALUES(1, 2)").Run().error().code, Code::kConflict);

  auto second = SqlDatabase::Open(Path(), {.busy_timeout_ms = 1});
  ASSERT_TRUE(second.has_value());
  const auto held = SqlTransaction::Begin(*db_);
  EXPECT_EQ(SqlTransaction::Begin(**second).error().code, Code::kTransient);

  const std::string text = (dir_ / "text").string();
  std::ofstream(text) << std::string(4096, 'x');
  EXPECT_EQ(SqlDatabase::Open(text, {}).error().code, Code::kCorrupt);
  EXPECT_EQ(SqlDatabase::Open((dir_ / "no" / "a.db").string(), {}).error().code, Code::kTransient);
}

TEST_F(SqliteTest, AResetFileIsEmptyHoweverDamaged) {
  ASSERT_TRUE(db_->Query("INSERT INTO t VALUES(1, 1)").Run());
  db_.reset();
  const std::string sound = [&] {
    std::ifstream file(Path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  const std::string header_only = sound.substr(0, 100);
  std::string bad_schema = sound;
  bad_schema.replace(100, 200, 200, 'x');
  for (const std::string& bytes : {std::string("no database"), std::string(8192, 'x'), header_only,
                                   bad_schema, sound, std::string()}) {
    std::ofstream(Path(), std::ios::binary) << bytes;
    {
      auto db = SqlDatabase::Reset(Path(), {});
      ASSERT_TRUE(db.has_value()) << db.error().message;
      EXPECT_EQ((*db)->QueryInt("SELECT count(*) FROM sqlite_schema").value(), 0);
      SqlQuery mode = (*db)->Query("PRAGMA journal_mode");
      ASSERT_TRUE(mode.Next().value());
      EXPECT_EQ(mode.Text(0), "wal");
    }
    auto again = SqlDatabase::Open(Path(), {});
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_TRUE((*again)->Exec("CREATE TABLE t(a); INSERT INTO t VALUES(1)"));
    EXPECT_EQ((*again)->QueryInt("SELECT count(*) FROM t").value(), 1);
  }
}

TEST_F(SqliteTest, WhoHasAResetFileOpenSeesNoOldRows) {
  ASSERT_TRUE(db_->Query("INSERT INTO t VALUES(1, 1)").Run());
  ASSERT_EQ(Count(), 1);
  ASSERT_TRUE(SqlDatabase::Reset(Path(), {}).has_value());
  EXPECT_FALSE(db_->QueryInt("SELECT count(*) FROM t").has_value());
  auto again = SqlDatabase::Open(Path(), {});
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ((*again)->QueryInt("SELECT count(*) FROM sqlite_schema").value(), 0);
}

TEST_F(SqliteTest, AResetWaitsForAWriter) {
  const auto held = SqlTransaction::Begin(*db_);
  const auto reset = SqlDatabase::Reset(Path(), {.busy_timeout_ms = 1});
  ASSERT_FALSE(reset.has_value());
  EXPECT_EQ(reset.error().code, Code::kTransient) << reset.error().message;
}

TEST_F(SqliteTest, FreedBytesAreOverwrittenAndWritesAreFlushed) {
  EXPECT_EQ(db_->QueryInt("PRAGMA secure_delete").value(), 1);
  EXPECT_EQ(db_->QueryInt("PRAGMA synchronous").value(), 2);
  EXPECT_EQ(db_->QueryInt("PRAGMA foreign_keys").value(), 1);
}

}  // namespace
}  // namespace inferscale
