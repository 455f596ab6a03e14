// Tenants' quotas of KV and of tokens to encode: who is over them waits, and gets the same answers.
#include <algorithm>

#include "app/encode_quotas.h"
#include "app_world.h"

namespace inferscale {
namespace {

class AppQuotaTest : public AppTest {
 protected:
  void Add(const std::string& tenant, const std::string& text) {
    Fact fact = Make(text);
    fact.scope.tenant = tenant;
    ASSERT_TRUE(app_->Add(std::span(&fact, 1)).has_value());
  }
  Answer AskOf(const std::string& tenant) {
    AskRequest request;
    request.scope = {tenant, "ana", "", ""};
    request.question = "tower";
    request.compose.plain_last = 0;
    return app_->Ask(request, nullptr).value();
  }
};

TEST_F(AppQuotaTest, KvBeyondItIsNotMade) {
  Add("full", "the tower is amber");
  Add("free", "the tower is amber");
  ASSERT_TRUE(app_->facts().PutQuota("full", {.kv_bytes = 1}));
  Add("none", "the tower is blue");
  ASSERT_TRUE(app_->facts().PutQuota("none", {.encode_tokens_per_minute = 1}));
  ASSERT_TRUE(app_->EncodePending(nullptr, {}).has_value());
  // A record may pass the limit, then there are no more. A person's own encode heeds no minutes.
  const uint64_t bytes = app_->UseOf("full")->kv_bytes;
  EXPECT_GT(bytes, 0U);
  EXPECT_EQ(Injected(AskOf("none")), 1U);
  for (int i = 0; i < 12; ++i) {
    Add("full", "the tower has a room of number " + std::to_string(i));
    Add("free", "the tower has a room of number " + std::to_string(i));
  }
  ASSERT_TRUE(app_->EncodePending(nullptr, {}).has_value());
  EXPECT_EQ(app_->UseOf("full")->kv_bytes, bytes);
  EXPECT_GT(app_->UseOf("free")->kv_bytes, bytes);
  EXPECT_GT(*app_->PendingEpisodes(), 0U);
  const Answer full = AskOf("full");
  const Answer free = AskOf("free");
  EXPECT_LT(Injected(full), full.facts.size());
  EXPECT_EQ(Injected(free), free.facts.size());
  EXPECT_EQ(full.facts.size(), free.facts.size());
  EXPECT_EQ(full.stats.prompt_tokens, free.stats.prompt_tokens);
  // More room, and it goes on.
  ASSERT_TRUE(app_->facts().PutQuota("full", {.kv_bytes = uint64_t{1} << 40}));
  Encode();
  EXPECT_EQ(Injected(AskOf("full")), full.facts.size());
}

TEST_F(AppQuotaTest, TokensOfAMinuteAreWaitedFor) {
  ManualClock clock(1'000'000);
  const auto kv = KvStore::Open(SystemEnv(), clock, {.dir = (dir_ / "other").string()});
  EncodeQuotas quotas(app_->facts(), **kv, clock);
  const auto waits = [&](const std::string& tenant) {
    return *quotas.Waits(tenant, EncodePace::kByQuota);
  };
  ASSERT_TRUE(app_->facts().PutQuota("slow", {.encode_tokens_per_minute = 600}));
  EXPECT_FALSE(waits("slow"));
  quotas.Spend("slow", 400);
  EXPECT_FALSE(waits("slow"));
  quotas.Spend("slow", 300);  // 100 more than it had
  quotas.Spend("any", 1 << 30);
  EXPECT_TRUE(waits("slow"));
  EXPECT_FALSE(waits("any"));
  EXPECT_FALSE(*quotas.Waits("slow", EncodePace::kAtOnce));
  EXPECT_EQ(*quotas.Waiting(EncodePace::kByQuota), std::vector<std::string>{"slow"});
  clock.Advance(9'000);
  EXPECT_TRUE(waits("slow"));
  clock.Advance(1'100);  // ten tokens a second
  EXPECT_FALSE(waits("slow"));
  quotas.Spend("slow", 1000);
  clock.Advance(3'600'000);
  EXPECT_FALSE(waits("slow"));
  quotas.Spend("slow", 601);  // what an hour was unused is no more than a minute's
  EXPECT_TRUE(waits("slow"));
  clock.Advance(-3'600'000);
  EXPECT_TRUE(waits("slow"));
  ASSERT_TRUE(app_->facts().PutQuota("slow", {}));
  EXPECT_FALSE(waits("slow"));
}

}  // namespace
}  // namespace inferscale
