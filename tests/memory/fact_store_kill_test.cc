// A process that writes is killed at any moment: what it was told is durable must be there, and
// what it was told is deleted must not come back.
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "fact_store_testing.h"

namespace inferscale {
namespace {

constexpr int kRounds = 40;

// What the reader of the pipe knows. An operation is announced before it is begun ("try") and
// acknowledged after it returned ("done"), so at most one is in doubt.
struct Known {
  std::map<std::string, std::string> texts;  // id to text
  std::set<std::string> deleted;
  std::set<Hash128> keys;  // of KV that was recorded at some time

  std::string doubt;  // the operation that was announced last and not acknowledged
  std::string doubt_id;
  std::string doubt_text;

  void Read(const std::string& line) {
    std::istringstream in(line);
    std::string step;
    in >> step;
    if (step == "try") {
      in >> doubt >> doubt_id >> doubt_text;
      return;
    }
    std::string id;
    in >> id;  // of what was done: a new fact's, or as announced
    if (doubt == "add") texts[id] = doubt_text;
    if (doubt == "update") texts[doubt_id] = doubt_text;
    if (doubt == "delete") {
      texts.erase(doubt_id);
      deleted.insert(doubt_id);
    }
    if (doubt == "kv") keys.insert(Hash128::FromHex(doubt_text));
    doubt.clear();
  }
};

// Runs in the child until it is killed.
class Writer {
 public:
  Writer(const std::string& path, int pipe, uint32_t seed, const Known& known)
      : pipe_(pipe), random_(seed) {
    store_ = FactStore::Open(clock_, {.path = path, .episode_facts = 3}).value();
    for (const auto& [id, text] : known.texts) ids_.push_back(id);
  }

  [[noreturn]] void Run() {
    for (;;) {
      const size_t kind = random_() % 8;
      if (ids_.empty() || kind < 3) {
        Add();
      } else if (kind == 3) {
        Update();
      } else if (kind == 4) {
        Delete();
      } else {
        PutKv();
      }
    }
  }

 private:
  void Say(const std::string& line) {
    const std::string out = line + "\n";
    if (::write(pipe_, out.data(), out.size()) != static_cast<ssize_t>(out.size())) ::_exit(2);
  }
  std::string AnyText() { return fmt::format("text-{:08x}-{:08x}", random_(), random_()); }
  const std::string& AnyId() { return ids_[random_() % ids_.size()]; }

  void Add() {
    const Fact fact = MakeFact(AnyText());
    Say(fmt::format("try add - {}", fact.text));
    ids_.push_back(store_->Add(std::span(&fact, 1), {}, kEmbedder).value().front().id);
    Say("done " + ids_.back());
  }
  void Update() {
    FactUpdate update;
    update.text = AnyText();
    const std::string id = AnyId();
    Say(fmt::format("try update {} {}", id, *update.text));
    store_->Update("default", id, update, {}, kEmbedder).value();
    Say("done");
  }
  void Delete() {
    const std::string id = AnyId();
    Say(fmt::format("try delete {} -", id));
    store_->Delete("default", std::span(&id, 1)).value();
    std::erase(ids_, id);
    Say("done");
  }
  void PutKv() {
    const int64_t episode = store_->Get("default", AnyId()).value().episode;
    const Episode whole = store_->GetEpisodes(std::span(&episode, 1)).value().front();
    const Fact window = store_->Get("default", AnyId()).value();
    const Hash128 key{random_(), random_()};
    Say(fmt::format("try kv - {}", key.Hex()));
    const auto put = store_->PutKv(
        kModel, Encode(whole, key, {window}, static_cast<uint32_t>(whole.facts.size())));
    if (!put) ::_exit(3);
    Say("done");
  }

  SystemClock clock_;
  int pipe_;
  std::mt19937 random_;
  std::unique_ptr<FactStore> store_;
  std::vector<std::string> ids_;
};

void CheckIntegrity(const std::string& path) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  std::string answer;
  for (const char* sql : {"PRAGMA integrity_check", "PRAGMA foreign_key_check"}) {
    const auto append = [](void* out, int, char** values, char**) {
      static_cast<std::string*>(out)->append(values[0]);
      return 0;
    };
    ASSERT_EQ(sqlite3_exec(db, sql, append, &answer, nullptr), SQLITE_OK);
  }
  EXPECT_EQ(answer, "ok");
  sqlite3_close(db);
}

// Compares, and settles what was in doubt by what is there.
void Check(const std::string& path, Known& known) {
  SystemClock clock;
  const auto opened = FactStore::Open(clock, {.path = path, .episode_facts = 3});
  ASSERT_OK(opened);
  FactStore& store = **opened;
  std::map<std::string, std::string> found;
  const ListQuery all{.scope = {}, .limit = 1'000'000};
  const auto facts = store.List(all);
  ASSERT_OK(facts);
  for (const Fact& fact : *facts) found[fact.id] = fact.text;

  size_t unknown = 0;
  for (const auto& [id, text] : found) {
    EXPECT_FALSE(known.deleted.contains(id)) << "came back";
    if (known.texts.contains(id)) continue;
    ++unknown;
    EXPECT_EQ(known.doubt, "add");
    EXPECT_EQ(text, known.doubt_text);
  }
  EXPECT_LE(unknown, 1U);
  for (const auto& [id, text] : known.texts) {
    const bool in_doubt = id == known.doubt_id;
    if (!found.contains(id)) {
      EXPECT_TRUE(in_doubt && known.doubt == "delete") << "lost";
    } else if (found[id] != text) {
      EXPECT_TRUE(in_doubt && known.doubt == "update") << "changed";
      EXPECT_EQ(found[id], known.doubt_text);
    }
  }
  for (const auto& [id, text] : known.texts) {
    if (!found.contains(id)) known.deleted.insert(id);
  }
  known.texts = found;

  // A key is used or garbage; none is forgotten.
  const auto garbage = store.Garbage(1'000'000);
  ASSERT_OK(garbage);
  const std::set<Hash128> listed(garbage->begin(), garbage->end());
  for (const Hash128& key : known.keys) {
    EXPECT_NE(listed.contains(key), *store.IsReferenced(key)) << key.Hex();
  }
}

void Round(const std::string& path, uint32_t seed, Known& known) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(ends[0]);
    Writer(path, ends[1], seed, known).Run();
  }
  ::close(ends[1]);
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::microseconds(5'000 + seed * 7919ULL % 60'000));
    ::kill(child, SIGKILL);
  });
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    said.append(buffer, static_cast<size_t>(n));
  }
  killer.join();
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(ends[0]);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed with " << WEXITSTATUS(status);
  known.doubt.clear();
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) known.Read(line);
}

TEST(FactStoreKillTest, AcknowledgedIsDurable) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  TempDir dir;
  const std::string path = dir.File("memory.db");
  Known known;
  for (uint32_t round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(fmt::format("round {}", round));
    Round(path, seed + round, known);
    if (testing::Test::HasFatalFailure()) return;
    Check(path, known);
    if (testing::Test::HasFailure()) return;
  }
  CheckIntegrity(path);
  EXPECT_GT(known.texts.size(), size_t{kRounds} / 8) << "too little was written to prove anything";
}

}  // namespace
}  // namespace inferscale
