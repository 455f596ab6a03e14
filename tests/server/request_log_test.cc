#include "server/request_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace inferscale {
namespace {

using ::testing::ElementsAre;

RequestRecord Record(const std::string& route, const std::string& tenant, size_t facts = 0) {
  RequestRecord record;
  record.method = "POST";
  record.route = route;
  record.tenant = tenant;
  record.status = 200;
  if (facts > 0) {
    record.answer.emplace();
    record.answer->injected.assign(facts - 1, "some id");
    record.answer->prefilled = {"another id"};
  }
  return record;
}

std::vector<std::string> Routes(const RequestLog& log, size_t limit = 100, uint64_t after = 0,
                                const std::optional<std::string>& tenant = std::nullopt) {
  std::vector<std::string> routes;
  for (const RequestRecord& record : log.Last(limit, after, tenant)) routes.push_back(record.route);
  return routes;
}

TEST(RequestLog, TheNewestComeFirst) {
  RequestLog log;
  EXPECT_EQ(log.newest(), 0U);
  EXPECT_TRUE(log.Last(10, 0, std::nullopt).empty());
  log.Add(Record("/a", "t1"));
  log.Add(Record("/b", "t2"));
  log.Add(Record("/c", "t1"));
  log.Add(Record("/d", ""));
  EXPECT_EQ(log.newest(), 4U);
  EXPECT_THAT(Routes(log), ElementsAre("/d", "/c", "/b", "/a"));
  EXPECT_THAT(Routes(log, 2), ElementsAre("/d", "/c"));
  EXPECT_THAT(Routes(log, 100, 2), ElementsAre("/d", "/c"));
  EXPECT_TRUE(Routes(log, 100, 4).empty());
  EXPECT_TRUE(Routes(log, 100, 1000).empty());
  EXPECT_THAT(Routes(log, 100, 0, "t1"), ElementsAre("/c", "/a"));
  EXPECT_THAT(Routes(log, 1, 0, "t2"), ElementsAre("/b"));
  EXPECT_THAT(Routes(log, 100, 0, "nobody"), ElementsAre());
  EXPECT_EQ(log.Last(1, 0, "t1").front().number, 3U);
}

TEST(RequestLog, HoldsSoManyRequests) {
  RequestLog log(3);
  for (int i = 0; i < 10; ++i) log.Add(Record(fmt::format("/{}", i), "t"));
  EXPECT_THAT(Routes(log), ElementsAre("/9", "/8", "/7"));
  EXPECT_EQ(log.newest(), 10U);
}

TEST(RequestLog, HoldsSoManyIds) {
  RequestLog log(100, 10);
  log.Add(Record("/a", "t", 4));
  log.Add(Record("/b", "t"));
  log.Add(Record("/c", "t", 6));
  EXPECT_THAT(Routes(log), ElementsAre("/c", "/b", "/a"));
  log.Add(Record("/d", "t", 1));  // the eleventh
  EXPECT_THAT(Routes(log), ElementsAre("/d", "/c", "/b"));
  log.Add(Record("/e", "t", 50));  // more than all, and still there
  EXPECT_THAT(Routes(log), ElementsAre("/e"));
  EXPECT_EQ(log.Last(1, 0, std::nullopt).front().answer->injected.size(), 49U);
  log.Add(Record("/f", "t", 1));
  EXPECT_THAT(Routes(log), ElementsAre("/f"));
}

TEST(RequestLog, AnAnswersFactsAreSorted) {
  Answer answer;
  answer.text = "not kept";
  answer.mode = MemoryMode::kText;
  answer.times.first_token_ms = 12;
  answer.stats.injected_tokens = 7;
  for (const auto& [id, injected] : {std::pair{"a", true}, {"b", false}, {"c", true}}) {
    UsedFact used;
    used.fact.id = id;
    used.injected = injected;
    answer.facts.push_back(used);
  }
  const AnswerRecord record = MakeAnswerRecord(answer);
  EXPECT_EQ(record.mode, MemoryMode::kText);
  EXPECT_EQ(record.first_token_ms, 12);
  EXPECT_EQ(record.stats.injected_tokens, 7U);
  EXPECT_THAT(record.injected, ElementsAre("a", "c"));
  EXPECT_THAT(record.prefilled, ElementsAre("b"));
}

TEST(RequestLog, ManyWriteAndRead) {
  RequestLog log(50, 200);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log, t] {
      for (size_t i = 0; i < 500; ++i) {
        log.Add(Record("/", fmt::format("{}", t), i % 7));
        uint64_t before = UINT64_MAX;
        for (const RequestRecord& record : log.Last(50, 0, std::nullopt)) {
          EXPECT_LT(record.number, before);
          before = record.number;
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(log.newest(), 2000U);
  EXPECT_LE(log.Last(100, 0, std::nullopt).size(), 50U);
}

}  // namespace
}  // namespace inferscale
