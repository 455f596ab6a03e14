// Kill -9 at a random moment of add, update, delete, encode and compact, many times over one data
// directory. After each: every acknowledged fact is there, nothing deleted comes back, no KV stands
// at a token that is not its own, and a deleted word is in no KV record that an answer can use.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "toy_models.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

AppOptions Options(const fs::path& dir) {
  AppOptions options;
  options.data_dir = dir.string();
  options.arena_bytes = 8 << 20;
  options.window = {WindowKind::kAnchor, {4}};
  options.episode_facts = 3;
  options.system = "sys";
  return options;
}

// The child: works until it is killed. It writes a line when it begins something ("?") and when
// that was acknowledged ("!").
[[noreturn]] void Work(const fs::path& dir, int out, unsigned seed) {
  const auto say = [out](const std::string& line) {
    if (write(out, line.data(), line.size()) < 0) _exit(3);
  };
  auto opened = OpenApp(Options(dir), ToyModels(std::make_shared<ToyLog>()));
  if (!opened) {
    say("E " + opened.error().message + "\n");
    _exit(2);
  }
  App& app = **opened;
  std::mt19937 random(seed);
  std::vector<std::string> ids;
  if (auto list = app.facts().List({.scope = {"default", "ana", {}, {}}, .limit = 10000})) {
    for (const Fact& fact : *list) ids.push_back(fact.id);
  }
  say("R\n");
  for (unsigned step = 0;; ++step) {
    const auto what = static_cast<unsigned>(random() % 10);
    if (what < 5) {
      std::vector<Fact> facts;
      std::string words;
      for (unsigned i = 0; i < 1 + random() % 4; ++i) {
        Fact fact;
        fact.scope.user = "ana";
        const std::string word =
            "w" + std::to_string(seed) + "x" + std::to_string(step) + "x" + std::to_string(i) + "w";
        fact.text = "the word " + word + " was said";
        words += " " + word;
        facts.push_back(fact);
      }
      say("? add" + words + "\n");
      if (auto added = app.Add(facts)) {
        for (const AddResult& result : *added) ids.push_back(result.id);
        say("! add" + words + "\n");
      }
    } else if (what < 7 && !ids.empty()) {
      const size_t at = random() % ids.size();
      auto fact = app.facts().Get("default", ids[at]);
      if (!fact) continue;
      const std::string word = fact->text.substr(9, fact->text.find(' ', 9) - 9);
      say("? delete " + word + "\n");
      if (app.Delete("default", std::vector<std::string>{ids[at]})) say("! delete " + word + "\n");
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(at));
    } else if (what < 9) {
      if (!app.EncodePending(nullptr, {})) say("E encode\n");
    } else {
      if (!app.Compact(false)) say("E compact\n");
    }
  }
}

class KillTest : public ::testing::Test {
 protected:
  fs::path dir_ = fs::temp_directory_path() / ("inferscale-kill-" + std::to_string(getpid()));
  std::set<std::string> sure_;   // acknowledged and not deleted
  std::set<std::string> maybe_;  // begun, never acknowledged: may be there or not
  std::set<std::string> gone_;   // deletion acknowledged

  void Read(const std::string& log) {
    std::istringstream lines(log);
    std::set<std::string> begun;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string mark;
      std::string what;
      words >> mark >> what;
      ASSERT_NE(mark, "E") << line;
      for (std::string word; words >> word;) {
        sure_.erase(word);
        maybe_.insert(word);
        if (mark != "!") continue;
        maybe_.erase(word);
        (what == "add" ? sure_ : gone_).insert(word);
      }
    }
  }

  void Verify() {
    auto log = std::make_shared<ToyLog>();
    auto opened = OpenApp(Options(dir_), ToyModels(log));
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    App& app = **opened;
    auto list = app.facts().List({.scope = {"default", "ana", {}, {}}, .limit = 100000});
    ASSERT_TRUE(list.has_value());
    std::set<std::string> there;
    for (const Fact& fact : *list) there.insert(fact.text.substr(9, fact.text.find(' ', 9) - 9));
    for (const std::string& word : sure_) EXPECT_TRUE(there.contains(word)) << word << " is lost";
    for (const std::string& word : gone_) EXPECT_FALSE(there.contains(word)) << word << " is back";
    for (const std::string& word : there) {
      EXPECT_TRUE(sure_.contains(word) || maybe_.contains(word)) << word << " was never added";
    }
    AskRequest request;
    request.scope.user = "ana";
    request.question = "which word was said";
    request.compose.facts = 40;
    request.compose.plain_last = 0;
    auto answer = app.Ask(request, nullptr);
    ASSERT_TRUE(answer.has_value()) << answer.error().message;
    EXPECT_EQ(log->wrong_rows, 0U);
  }
};

TEST_F(KillTest, NothingIsLostAndNothingComesBack) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  fs::remove_all(dir_);
  constexpr int kRounds = 100;
  int killed_at_work = 0;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const unsigned child_seed = static_cast<unsigned>(random());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(ends[0]);
      Work(dir_, ends[1], child_seed);
    }
    close(ends[1]);
    std::string log;
    std::jthread reader([&] {
      char buffer[4096];
      for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
        log.append(buffer, static_cast<size_t>(n));
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(10000 + random() % 140000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    reader.join();
    close(ends[0]);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << log;
    if (log.find('!') != std::string::npos) ++killed_at_work;
    Read(log);
    Verify();
  }
  EXPECT_GT(killed_at_work, kRounds / 10) << "too few rounds got to work";
  EXPECT_FALSE(sure_.empty());
  EXPECT_FALSE(gone_.empty());
  fs::remove_all(dir_);
}

}  // namespace
}  // namespace inferscale
