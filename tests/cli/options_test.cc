#include "cli/options.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <fstream>

#include "cli/command.h"
#include "cli/sample.h"
#include "cli/temp_dir.h"

namespace inferscale {
namespace {

class OptionsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"INFERSCALE_MODEL", "INFERSCALE_EMBED_MODEL", "INFERSCALE_USER", "INFERSCALE_FACTS",
          "INFERSCALE_CONFIG", "INFERSCALE_DATA_DIR", "INFERSCALE_URL", "INFERSCALE_ENGINE"}) {
      unsetenv(name);
    }
    setenv("XDG_CONFIG_HOME", folder_->path().c_str(), 1);
    setenv("XDG_DATA_HOME", "/data-home", 1);
  }
  void TearDown() override { SetUp(); }

  std::string WriteConfig(const std::string& text, const std::string& name = "inferscale.toml") {
    const std::string path = folder_->path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  Status Parse(std::vector<std::string> words) {
    root_ = std::make_unique<CLI::App>("test", "inferscale");
    options_ = Options();
    AddGlobalOptions(*root_, &options_);
    texts_.clear();
    CLI::App* verb = AddCommand(*root_, "verb", "does something", {"inferscale verb"});
    AddTexts(verb, "TEXT", &texts_, "texts");
    std::reverse(words.begin(), words.end());
    root_->parse(words);
    return FinishOptions(*root_, &options_);
  }

  Result<TempDir> folder_ = TempDir::Make();
  std::unique_ptr<CLI::App> root_;
  Options options_;
  std::vector<std::string> texts_;
};

TEST_F(OptionsTest, UrlsMeanVllm) {
  ASSERT_TRUE(Parse({"verb"}));
  EXPECT_EQ(options_.app.engine, EngineKind::kLlama);
  ASSERT_TRUE(Parse({"verb", "--url", "http://a", "--url", "http://b,http://c", "text"}));
  EXPECT_EQ(options_.app.engine, EngineKind::kVllm);
  EXPECT_EQ(options_.app.urls, (std::vector<std::string>{"http://a", "http://b", "http://c"}));
  EXPECT_EQ(texts_, std::vector<std::string>{"text"});
  ASSERT_TRUE(Parse({"verb", "--url", "http://a", "--engine", "llama"}));
  EXPECT_EQ(options_.app.engine, EngineKind::kLlama);
  const std::string path = WriteConfig("url = [\"http://d\", \"http://e\"]\n", "urls.toml");
  ASSERT_TRUE(Parse({"verb", "--config", path}));
  EXPECT_EQ(options_.app.urls, (std::vector<std::string>{"http://d", "http://e"}));
  EXPECT_EQ(options_.app.engine, EngineKind::kVllm);
  setenv("INFERSCALE_URL", "http://f,http://g", 1);
  ASSERT_TRUE(Parse({"verb"}));
  EXPECT_EQ(options_.app.urls.size(), 2U);
}

TEST_F(OptionsTest, HasDefaults) {
  ASSERT_TRUE(Parse({"verb"}));
  EXPECT_EQ(options_.app.data_dir, "/data-home/inferscale");
  EXPECT_EQ(options_.scope.user, "default");
  EXPECT_EQ(options_.scope.tenant, "default");
  EXPECT_EQ(options_.app.window, WindowStrategy{});
  EXPECT_EQ(options_.app.arena_bytes, uint64_t{1} << 30);
  EXPECT_FALSE(options_.json());
  EXPECT_FALSE(options_.typed.contains("user"));
}

TEST_F(OptionsTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  WriteConfig("facts = 11\nuser = \"file\"\nepisode = 3\n");
  ASSERT_TRUE(Parse({"verb"}));
  EXPECT_EQ(options_.app.compose.facts, 11U);
  EXPECT_EQ(options_.app.episode_facts, 3U);
  EXPECT_EQ(options_.scope.user, "file");
  setenv("INFERSCALE_FACTS", "22", 1);
  ASSERT_TRUE(Parse({"verb"}));
  EXPECT_EQ(options_.app.compose.facts, 22U);
  ASSERT_TRUE(Parse({"verb", "--facts", "33"}));
  EXPECT_EQ(options_.app.compose.facts, 33U);
  EXPECT_EQ(options_.scope.user, "file");
}

TEST_F(OptionsTest, OnlyATypedScopeIsTyped) {
  setenv("INFERSCALE_USER", "ana", 1);
  ASSERT_TRUE(Parse({"verb"}));
  EXPECT_EQ(options_.scope.user, "ana");
  EXPECT_FALSE(options_.typed.contains("user"));
  ASSERT_TRUE(Parse({"verb", "--user", "ana"}));
  EXPECT_TRUE(options_.typed.contains("user"));
}

TEST_F(OptionsTest, NamesTheUnknownKeyOfAFile) {
  const std::string path = WriteConfig("modell = \"x\"\n", "other.toml");
  const Status status = Parse({"verb", "--config", path});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalid);
  EXPECT_NE(status.error().message.find("'modell'"), std::string::npos);
  EXPECT_NE(status.error().message.find(path), std::string::npos);
  WriteConfig("[bench]\nrepeat = 3\n", "other.toml");
  EXPECT_FALSE(Parse({"verb", "--config", path}));
  WriteConfig("config = \"x\"\n", "other.toml");
  EXPECT_FALSE(Parse({"verb", "--config", path}));
}

TEST_F(OptionsTest, ChecksValuesOfAFileLikeThoseOfFlags) {
  const std::string path = WriteConfig("facts = \"many\"\n", "other.toml");
  EXPECT_FALSE(Parse({"verb", "--config", path}));
  WriteConfig("output = \"xml\"\n", "other.toml");
  EXPECT_FALSE(Parse({"verb", "--config", path}));
  WriteConfig("output = \"json\"\nverbose = true\nwindow = \"window(4)\"\n", "other.toml");
  ASSERT_TRUE(Parse({"verb", "--config", path}));
  EXPECT_TRUE(options_.json());
  EXPECT_EQ(options_.verbose, 1);
  EXPECT_EQ(options_.app.window.ToString(), "window(4)");
  EXPECT_FALSE(Parse({"verb", "--config", path + ".missing"}));
}

TEST_F(OptionsTest, RefusesWhatMakesNoSense) {
  EXPECT_FALSE(Parse({"verb", "--window", "sideways(3)"}));
  EXPECT_FALSE(Parse({"verb", "--user", "\xFF"}));
  EXPECT_THROW(static_cast<void>(Parse({"verb", "--facts", "-1"})), CLI::ParseError);
  EXPECT_THROW(static_cast<void>(Parse({"verb", "--no-such"})), CLI::ParseError);
}

TEST_F(OptionsTest, TextsArriveAsTheyWere) {
  ASSERT_TRUE(Parse({"verb", "[a, b]", "verb", "", "--facts", "3", "--", "--user", "[]"}));
  EXPECT_EQ(texts_, (std::vector<std::string>{"[a, b]", "verb", "", "--user", "[]"}));
  EXPECT_EQ(options_.app.compose.facts, 3U);
}

TEST(ExitCode, SaysWhoseFaultItIs) {
  EXPECT_EQ(ExitCode(Code::kInvalid), 2);
  EXPECT_EQ(ExitCode(Code::kNotFound), 3);
  EXPECT_EQ(ExitCode(Code::kCancelled), 130);
  EXPECT_EQ(ExitCode(Code::kTransient), 1);
}

TEST(MakeFacts, AreManyDatedAndDifferent) {
  const auto facts = MakeFacts(3000, {});
  std::set<std::string> texts;
  for (const Fact& fact : facts) {
    EXPECT_TRUE(fact.when_ms.has_value());
    texts.insert(NormalizeForDuplicates(fact));
  }
  EXPECT_EQ(texts.size(), facts.size());
  EXPECT_EQ(MakeFacts(10, {})[9].text, facts[9].text);
}

}  // namespace
}  // namespace inferscale
