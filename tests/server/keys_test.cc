#include "server/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "server/gatekeeper.h"

namespace inferscale {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class KeysTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    keys_ = OpenKeys();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::unique_ptr<KeyStore> OpenKeys() { return KeyStore::Open(clock_, path()).value(); }
  std::string path() const { return (dir_ / "keys.db").string(); }

  const std::filesystem::path dir_ =
      std::filesystem::temp_directory_path() / ("inferscale-keys-" + std::to_string(getpid()));
  ManualClock clock_{1'000'000};
  std::unique_ptr<KeyStore> keys_;
};

TEST_F(KeysTest, AKeySaysWhoseItIs) {
  EXPECT_FALSE(*keys_->Any());
  const NewKey made = keys_->Create({"acme", Access::kRead, "bot", 60}).value();
  EXPECT_TRUE(*keys_->Any());
  EXPECT_THAT(made.key, testing::StartsWith("isk-" + made.info.id + "-"));
  const KeyInfo info = keys_->Check(made.key).value();
  EXPECT_EQ(info.spec.tenant, "acme");
  EXPECT_EQ(info.spec.access, Access::kRead);
  EXPECT_EQ(info.spec.name, "bot");
  EXPECT_EQ(info.spec.per_minute, 60U);
  EXPECT_NE(keys_->Create({"acme"})->key, made.key);
}

TEST_F(KeysTest, AlmostAKeyIsNone) {
  const std::string key = keys_->Create({"acme"})->key;
  const std::string other = keys_->Create({"acme"})->key;
  std::vector<std::string> wrong = {"",
                                    "isk-",
                                    key + "0",
                                    key.substr(1),
                                    key.substr(0, 17),
                                    key.substr(0, 17) + other.substr(17)};
  for (size_t i = 0; i < key.size(); ++i) {
    wrong.push_back(key);
    wrong.back()[i] = key[i] == '0' ? '1' : '0';
  }
  for (const std::string& text : wrong) {
    const auto got = keys_->Check(text);
    ASSERT_FALSE(got) << text;
    EXPECT_EQ(got.error().code, Code::kNotFound);
  }
}

TEST_F(KeysTest, WhatOneProcessEndsNoOtherAccepts) {
  const auto other = OpenKeys();
  const NewKey a = keys_->Create({"acme"}).value();
  const NewKey b = keys_->Create({"acme"}).value();
  EXPECT_TRUE(other->Check(a.key));
  const NewKey rotated = keys_->Rotate(a.info.id).value();
  EXPECT_EQ(rotated.info.id, a.info.id);
  EXPECT_FALSE(other->Check(a.key));
  EXPECT_TRUE(other->Check(rotated.key));
  EXPECT_TRUE(keys_->Revoke(b.info.id));
  EXPECT_TRUE(keys_->Revoke(b.info.id));
  EXPECT_FALSE(other->Check(b.key));
  EXPECT_EQ(other->Rotate(b.info.id).error().code, Code::kNotFound);
  EXPECT_EQ(other->Revoke("no such").error().code, Code::kNotFound);
  const auto all = other->List().value();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].revoked_ms.has_value() + all[1].revoked_ms.has_value(), 1);
  EXPECT_TRUE(*other->Any());
}

TEST_F(KeysTest, TheFirstKeyIsMadeOnce) {
  const auto other = OpenKeys();
  const auto first = keys_->CreateFirst({"acme", Access::kAdmin}).value();
  ASSERT_TRUE(first);
  EXPECT_FALSE(other->CreateFirst({"acme", Access::kAdmin}).value());
  EXPECT_TRUE(other->Revoke(first->info.id));
  EXPECT_FALSE(keys_->CreateFirst({"acme", Access::kAdmin}).value());
}

TEST_F(KeysTest, TheFileHoldsNoSecret) {
  const std::string key = keys_->Create({"acme"})->key;
  const std::string secret = key.substr(17);
  for (const auto& file : std::filesystem::directory_iterator(dir_)) {
    std::ifstream in(file.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    EXPECT_THAT(bytes, Not(HasSubstr(secret))) << file.path();
    struct stat info = {};
    ASSERT_EQ(::stat(file.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0077U, 0U) << file.path();
  }
}

TEST_F(KeysTest, WrongSpecsAndFilesAreRefused) {
  EXPECT_EQ(keys_->Create({""}).error().code, Code::kInvalid);
  EXPECT_EQ(keys_->Create({"t", Access::kOpen}).error().code, Code::kInvalid);
  EXPECT_EQ(keys_->Create({"\xff"}).error().code, Code::kInvalid);
  EXPECT_EQ(keys_->Create({"t", Access::kRead, std::string(201, 'x')}).error().code,
            Code::kInvalid);
  const std::string elsewhere = (dir_ / "other.db").string();
  {
    const auto db = SqlDatabase::Open(elsewhere, {}).value();
    ASSERT_TRUE(db->Exec("CREATE TABLE t(a)"));
  }
  EXPECT_EQ(KeyStore::Open(clock_, elsewhere).error().code, Code::kCorrupt);
}

class GatekeeperTest : public KeysTest {
 protected:
  // The status of the refusal, or 0.
  static unsigned Admit(Gatekeeper& keeper, const HttpRequest& request,
                        Access needed = Access::kRead) {
    const auto caller = keeper.Admit(request, needed);
    return caller ? 0 : caller.error().status;
  }
  static HttpRequest Bearer(const std::string& key) {
    HttpRequest request;
    request.authorization = "Bearer " + key;
    return request;
  }
};

TEST_F(GatekeeperTest, KeysComeInThreeHeaders) {
  HttpRequest request;
  EXPECT_EQ(KeyOf(request), "");
  for (const char* header : {"Bearer k", "bearer k", "Token k", "TOKEN   k"}) {
    request.authorization = header;
    EXPECT_EQ(KeyOf(request), "k") << header;
  }
  for (const char* header : {"k", "Basic k", "Bearer", "Bearer ", "Bearerk"}) {
    request.authorization = header;
    EXPECT_EQ(KeyOf(request), "") << header;
  }
  request.api_key = "x";
  EXPECT_EQ(KeyOf(request), "x");
}

TEST_F(GatekeeperTest, AKeyIsNeededOnceThereWasOne) {
  Gatekeeper automatic(*keys_, clock_, {AuthMode::kAuto, "home"});
  Gatekeeper on(*keys_, clock_, {AuthMode::kOn, "home"});
  Gatekeeper off(*keys_, clock_, {AuthMode::kOff, "home"});
  HttpRequest local;
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "[::1]"}) {
    local.host = host;
    EXPECT_EQ(Admit(automatic, local), 0U) << host;
  }
  EXPECT_EQ(automatic.Admit(local, Access::kRead)->tenant, "home");
  EXPECT_EQ(Admit(automatic, local, Access::kAdmin), 403U);
  HttpRequest remote;
  for (const char* host :
       {"", ":80", "evil.example", "localhost.evil.example", "10.0.0.1:80", "["}) {
    remote.host = host;
    EXPECT_EQ(Admit(automatic, remote), 403U) << host;
    EXPECT_EQ(Admit(off, remote), 0U) << host;
  }
  EXPECT_EQ(Admit(on, {}), 401U);
  EXPECT_EQ(Admit(on, {}, Access::kOpen), 0U);
  const NewKey made = keys_->Create({"acme"}).value();
  EXPECT_EQ(Admit(automatic, {}), 401U);
  EXPECT_EQ(Admit(automatic, Bearer("wrong")), 401U);
  EXPECT_EQ(automatic.Admit(Bearer(made.key), Access::kRead)->tenant, "acme");
  EXPECT_EQ(off.Admit(Bearer("none"), Access::kRead)->tenant, "home");
  // The last key's end lets nobody in.
  ASSERT_TRUE(keys_->Revoke(made.info.id));
  EXPECT_EQ(Admit(automatic, {}), 401U);
  EXPECT_EQ(Admit(automatic, Bearer(made.key)), 401U);
}

TEST_F(GatekeeperTest, AKeyDoesWhatItMay) {
  Gatekeeper keeper(*keys_, clock_, {});
  const Access all[] = {Access::kRead, Access::kWrite, Access::kAdmin};
  for (const Access has : all) {
    const std::string key = keys_->Create({"acme", has})->key;
    for (const Access needs : all) {
      EXPECT_EQ(Admit(keeper, Bearer(key), needs), has < needs ? 403U : 0U);
    }
  }
}

TEST_F(GatekeeperTest, TooManyRequestsWait) {
  Gatekeeper keeper(*keys_, clock_, {.per_minute = 60});
  const std::string quick = keys_->Create({"acme"})->key;
  const std::string slow = keys_->Create({"acme", Access::kRead, "", 2})->key;
  for (int i = 0; i < 60; ++i) EXPECT_EQ(Admit(keeper, Bearer(quick)), 0U);
  EXPECT_EQ(Admit(keeper, Bearer(quick)), 429U);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Admit(keeper, Bearer(slow)), 0U);
  const auto refused = keeper.Admit(Bearer(slow), Access::kRead);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().headers, testing::Contains(testing::Pair("Retry-After", "30")));
  clock_.Advance(1000);
  EXPECT_EQ(Admit(keeper, Bearer(quick)), 0U);
  EXPECT_EQ(Admit(keeper, Bearer(quick)), 429U);
  EXPECT_EQ(Admit(keeper, Bearer(slow)), 429U);
  clock_.Advance(29'000);
  EXPECT_EQ(Admit(keeper, Bearer(slow)), 0U);
  clock_.Advance(-5000);  // a clock that is set back
  EXPECT_EQ(Admit(keeper, Bearer(slow)), 429U);
}

}  // namespace
}  // namespace inferscale
