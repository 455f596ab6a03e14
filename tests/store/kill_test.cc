// A process that is killed at any moment: what it acknowledged is there when the next one starts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "sample.h"

namespace inferscale {
namespace {

// What the child writes into the pipe: 'P' n (put), 'E' n (erased), and 'p'/'e' n before it tries.
struct Message {
  char what;
  uint32_t number;
};

[[noreturn]] void Work(const KvStoreOptions& options, uint64_t seed, int pipe) {
  const auto say = [pipe](char what, uint64_t n) {
    const Message message{what, static_cast<uint32_t>(n)};
    if (::write(pipe, &message, sizeof(message)) != sizeof(message)) ::_exit(3);
  };
  const SystemClock clock;
  auto store = KvStore::Open(SystemEnv(), clock, options);
  if (!store) ::_exit(2);
  std::mt19937_64 random(seed);
  while (true) {
    const uint64_t n = 1 + random() % 40;
    switch (random() % 8) {
      case 0:
        if (!(*store)->Compact(random() % 2 == 0)) ::_exit(4);
        break;
      case 1:
      case 2:
        say('e', n);
        if (!EraseSamples(**store, {n})) ::_exit(5);
        say('E', n);
        break;
      case 3:
        if (auto kv = GetSample(**store, n); kv && !IsSample(**kv, n)) ::_exit(6);
        break;
      default:
        say('p', n);
        if (!PutSamples(**store, {n})) ::_exit(7);
        say('P', n);
    }
  }
}

TEST(Kill, WhatWasAcknowledgedIsThere) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  TempDir dir(TempDir::Where::kMemory);
  KvStoreOptions options = SampleOptions(dir.path() + "/kv");
  options.segment_bytes = 40 << 10;
  std::map<uint64_t, char> known;  // 'P', 'E', or small: tried, and killed meanwhile

  for (int round = 0; round < 60; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) Work(options, seed + static_cast<uint64_t>(round), ends[1]);
    ::close(ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + random() % 30'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself with " << WEXITSTATUS(status);
    for (Message message; ::read(ends[0], &message, sizeof(message)) == sizeof(message);) {
      // A record that exists stays, whatever became of another attempt to put it.
      if (message.what == 'p' && known[message.number] == 'P') continue;
      known[message.number] = message.what;
    }
    ::close(ends[0]);

    const SystemClock clock;
    auto store = KvStore::Open(SystemEnv(), clock, options);
    ASSERT_TRUE(store) << store.error().message;
    ASSERT_NE((*store)->stats().recovery, Recovery::kCorrupt);
    for (auto& [n, what] : known) {
      const auto kv = GetSample(**store, n);
      ASSERT_TRUE(kv || kv.error().code == Code::kNotFound) << kv.error().message;
      ASSERT_TRUE(what != 'P' || kv) << n << " was put and is lost in round " << round;
      ASSERT_TRUE(what != 'E' || !kv) << n << " was erased and is back in round " << round;
      ASSERT_TRUE(!kv || IsSample(**kv, n)) << n;
      what = kv ? 'P' : 'E';
    }
  }
  EXPECT_GT(known.size(), 20U) << "the child got nowhere";
}

}  // namespace
}  // namespace inferscale
