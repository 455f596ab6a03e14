// What tenants may have, and what is refused.
#include "fact_store_testing.h"

namespace inferscale {
namespace {

class QuotaTest : public FactStoreTest {
 protected:
  Result<std::vector<AddResult>> Put(const std::string& tenant, const Strings& texts) {
    std::vector<Fact> facts;
    for (const std::string& text : texts) facts.push_back(MakeFact(text, {tenant, "ana", "", ""}));
    return store_->Add(facts, {}, kEmbedder);
  }
};

TEST_F(QuotaTest, FactsBeyondItAreRefusedWhole) {
  ASSERT_OK(store_->PutQuota("acme", {.facts = 3}));
  ASSERT_OK(Put("acme", {"one", "two"}));
  const auto refused = Put("acme", {"three", "four"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kOverQuota);
  EXPECT_NE(refused.error().message.find("quota of 3 facts"), std::string::npos);
  EXPECT_EQ(*store_->CountFacts("acme"), 2U);
  ASSERT_OK(Put("acme", {"one", "three"}));  // what is there already takes no room
  EXPECT_EQ(*store_->CountFacts("acme"), 3U);
  ASSERT_OK(Put("other", {"one", "two", "three", "four"}));
  // Of an export too.
  FactWithHistory restored;
  restored.fact = MakeFact("four", {"acme", "bo", "", ""});
  restored.fact.id = "another";
  EXPECT_EQ(store_->Restore(std::span(&restored, 1), {}, kEmbedder).error().code, Code::kOverQuota);
  ASSERT_OK(store_->DeleteScope({"acme", "ana", "", ""}));
  ASSERT_OK(store_->Restore(std::span(&restored, 1), {}, kEmbedder));
  ASSERT_OK(store_->PutQuota("acme", {}));
  ASSERT_OK(Put("acme", {"5", "6", "7", "8"}));
}

TEST_F(QuotaTest, IsKeptAndReplacedWhole) {
  const TenantQuota quota{10, uint64_t{5} << 40, 600};
  ASSERT_OK(store_->PutQuota("b", {.facts = 1}));
  ASSERT_OK(store_->PutQuota("a", {.facts = 7}));
  ASSERT_OK(store_->PutQuota("a", quota));
  Reopen();
  EXPECT_EQ(*store_->GetQuota("a"), quota);
  EXPECT_EQ(*store_->GetQuota("nobody"), TenantQuota{});
  const auto quotas = store_->Quotas();
  ASSERT_EQ(quotas->size(), 2U);
  EXPECT_EQ(quotas->front().first, "a");
  ASSERT_OK(store_->PutQuota("a", {}));
  EXPECT_EQ(store_->Quotas()->size(), 1U);
  EXPECT_EQ(store_->PutQuota("", quota).error().code, Code::kInvalid);
  EXPECT_EQ(store_->PutQuota("a", {.facts = ~uint64_t{0}}).error().code, Code::kInvalid);
}

TEST_F(QuotaTest, ATenantCanBeLeftOutOfWhatIsPending) {
  ASSERT_OK(Put("acme", {"one"}));
  ASSERT_OK(Put("other", {"one"}));
  const auto pending = [&](const Strings& without) {
    return store_->PendingEpisodes(kModel, kEncoding, {.without = without})->size();
  };
  EXPECT_EQ(pending({}), 2U);
  EXPECT_EQ(pending({"acme", "a \"quote\""}), 1U);
  EXPECT_EQ(pending({"acme", "other"}), 0U);
}

}  // namespace
}  // namespace inferscale
