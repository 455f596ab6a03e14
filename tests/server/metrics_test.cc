#include "server/metrics.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inferscale {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RequestRecord Request(const std::string& method, const std::string& route, unsigned status,
                      double seconds, const std::string& tenant) {
  RequestRecord record;
  record.method = method;
  record.route = route;
  record.status = status;
  record.ms = seconds * 1000;
  record.tenant = tenant;
  return record;
}

TEST(Metrics, RequestsAreCountedByRoute) {
  Metrics metrics;
  metrics.Count(Request("GET", "/memories/{id}", 200, 0.003, "acme"));
  metrics.Count(Request("GET", "/memories/{id}", 200, 0.3, "acme"));
  metrics.Count(Request("GET", "/memories/{id}", 404, 100, "a\"b\\\n"));
  metrics.Count(Request("", "", 404, 0.0001, ""));
  AppStats stats;
  stats.facts.facts = 7;
  const std::string text = metrics.Text(stats);
  EXPECT_THAT(text, HasSubstr("# TYPE inferscale_facts gauge\ninferscale_facts 7\n"));
  EXPECT_THAT(text, Not(HasSubstr("inferscale_kv_records")));  // no store, no number
  const auto requests = [](const char* labels) {
    return "inferscale_http_requests_total{" + std::string(labels) + "} ";
  };
  EXPECT_THAT(text,
              HasSubstr(requests(R"(method="GET",route="/memories/{id}",status="200")") + "2\n"));
  EXPECT_THAT(text,
              HasSubstr(requests(R"(method="GET",route="/memories/{id}",status="404")") + "1\n"));
  EXPECT_THAT(text, HasSubstr(requests(R"(method="",route="",status="404")") + "1\n"));
  const auto bucket = [](const char* bound) {
    return R"(_bucket{method="GET",route="/memories/{id}",le=")" + std::string(bound) + "\"} ";
  };
  EXPECT_THAT(text, HasSubstr(bucket("0.0025") + "0\n"));
  EXPECT_THAT(text, HasSubstr(bucket("0.005") + "1\n"));
  EXPECT_THAT(text, HasSubstr(bucket("0.5") + "2\n"));
  EXPECT_THAT(text, HasSubstr(bucket("60") + "2\n"));
  EXPECT_THAT(text, HasSubstr(bucket("+Inf") + "3\n"));
  EXPECT_THAT(text, HasSubstr("{tenant=\"acme\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("{tenant=\"a\\\"b\\\\\\n\"} 1\n"));
}

TEST(Metrics, AnswersAreCountedByMode) {
  Metrics metrics;
  RequestRecord record = Request("POST", "/v1/chat/completions", 200, 3, "acme");
  AnswerRecord& answer = record.answer.emplace();
  answer.first_token_ms = 200;
  answer.stats.injected_tokens = 100;
  answer.stats.prefilled_tokens = 20;
  answer.stats.cached_tokens = 3;
  answer.stats.generated_tokens = 7;
  metrics.Count(record);
  answer.mode = MemoryMode::kText;
  answer.first_token_ms = 0;  // nobody waited for a token
  metrics.Count(record);
  const std::string text = metrics.Text({});
  const std::string bucket = R"(inferscale_first_token_seconds_bucket{mode="kv",le=)";
  EXPECT_THAT(text, HasSubstr(bucket + "\"0.1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "\"0.25\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("inferscale_first_token_seconds_sum{mode=\"kv\"} 0.2\n"));
  EXPECT_THAT(text, Not(HasSubstr("mode=\"text\"")));
  EXPECT_THAT(text, HasSubstr("inferscale_prompt_tokens_total{how=\"injected\"} 200\n"));
  EXPECT_THAT(text, HasSubstr("inferscale_prompt_tokens_total{how=\"held\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("inferscale_prompt_tokens_total{how=\"computed\"} 40\n"));
  EXPECT_THAT(text, HasSubstr("inferscale_generated_tokens_total 14\n"));
}

TEST(Metrics, TenantsAreBounded) {
  Metrics metrics;
  for (int i = 0; i < 150; ++i) {
    metrics.Count(Request("GET", "/", 200, 0, fmt::format("t{}", i)));
  }
  metrics.Count(Request("GET", "/", 200, 0, "t0"));
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("{tenant=\"t0\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("{tenant=\"other\"} 50\n"));
  EXPECT_THAT(text, Not(HasSubstr("t120")));
}

}  // namespace
}  // namespace inferscale
