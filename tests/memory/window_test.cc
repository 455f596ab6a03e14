#include "memory/window.h"

#include <gtest/gtest.h>

#include <set>

#include "fact_store_testing.h"

namespace inferscale {
namespace {

TEST(Window, NamesAreReadBack) {
  for (const char* name : {"isolated", "session", "anchor(20)", "window(5)", "neighbours(1000)",
                           "anchor(8+20)", "window(1+2+3)"}) {
    const auto strategy = ParseWindow(name);
    ASSERT_TRUE(strategy.has_value()) << name;
    EXPECT_EQ(strategy->ToString(), name);
  }
  EXPECT_EQ(ParseWindow("anchor(20)").value(), WindowStrategy{});
  for (const char* name :
       {"", "anchor", "anchor()", "anchor(0)", "anchor(1001)", "anchor(-1)", "anchor(8+)",
        "anchor(+8)", "anchor(8,20)", "anchor(8+20", "anchor(8)x", "session(3)", "isolated()",
        "anchor(1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1)", "anchor(99999999999999999999)"}) {
    EXPECT_FALSE(ParseWindow(name).has_value()) << name;
  }
}

// Episodes of three facts.
class WindowChooserTest : public FactStoreTest {
 protected:
  void AddMany(int facts) {
    for (int i = 0; i < facts; ++i) Add("fact " + std::to_string(added_++));
  }
  std::vector<Episode> Episodes() {
    const auto ids = store_->PendingEpisodes(kModel, kEncoding, {}).value();
    return store_->GetEpisodes(ids).value();
  }
  std::vector<std::vector<Fact>> Choose(const std::string& window, const Episode& episode) {
    WindowChooser chooser(*store_, ParseWindow(window).value(), nullptr);
    auto windows = chooser.Choose(episode);
    EXPECT_TRUE(windows.has_value());
    return windows.value_or(std::vector<std::vector<Fact>>{});
  }
  static std::vector<int64_t> Rows(const std::vector<Fact>& facts) {
    std::vector<int64_t> rows;
    for (const Fact& fact : facts) rows.push_back(fact.row);
    return rows;
  }

  int added_ = 0;
};

TEST_F(WindowChooserTest, AnchorsAreSpreadAndDiffer) {
  AddMany(60);
  const std::vector<Episode> episodes = Episodes();
  std::set<std::vector<int64_t>> seen;
  for (const Episode& episode : episodes) {
    const auto windows = Choose("anchor(5+5+10)", episode);
    ASSERT_FALSE(windows.empty());
    EXPECT_LE(windows.size(), 3U);
    for (const auto& window : windows) {
      seen.insert(Rows(window));
      EXPECT_TRUE(std::ranges::is_sorted(Rows(window)));
      for (const Fact& fact : window) EXPECT_NE(fact.episode, episode.id);
      // From all parts of the history.
      EXPECT_LT(window.front().row, 13);
      EXPECT_GT(window.back().row, 48);
    }
  }
  // The same few windows stand before all episodes: each is computed once.
  EXPECT_EQ(seen.size(), 3U);
}

TEST_F(WindowChooserTest, OneAnchorStandsBeforeAllEpisodes) {
  AddMany(30);
  for (const Episode& episode : Episodes()) {
    const auto windows = Choose("anchor(10)", episode);
    ASSERT_EQ(windows.size(), 1U);
    EXPECT_EQ(Rows(windows[0]), Rows(store_->GetAnchor("default", "ana", 10).value()));
  }
}

TEST_F(WindowChooserTest, WhoHasFewFactsHasNoAnchors) {
  AddMany(15);
  const std::vector<Episode> episodes = Episodes();
  const auto windows = Choose("anchor(4+8)", episodes.back());  // before facts 12 to 14
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(windows[0].size(), 4U);
  EXPECT_EQ(windows[1].size(), 8U);
  EXPECT_EQ(windows[0].back().row, windows[1].back().row);
  EXPECT_EQ(Choose("anchor(4+8)", episodes.front()).size(), 1U);  // nothing stands before it
  EXPECT_TRUE(store_->GetAnchor("default", "ana", 12).value().empty());
  AddMany(1);
  EXPECT_EQ(Choose("anchor(4+8)", episodes.back())[0].front().row, Episodes()[0].facts[1].row);
  EXPECT_EQ(store_->GetAnchor("default", "ana", 12).value().size(), 12U);
}

TEST_F(WindowChooserTest, TheSameWindowIsComputedOnce) {
  AddMany(9);
  EXPECT_EQ(Choose("window(4+4)", Episodes().back()).size(), 1U);
  EXPECT_EQ(Choose("window(4+2)", Episodes().back()).size(), 2U);
  const auto isolated = Choose("isolated", Episodes().back());
  ASSERT_EQ(isolated.size(), 1U);
  EXPECT_TRUE(isolated[0].empty());
  EXPECT_EQ(Choose("session", Episodes().back())[0].size(), 6U);
}

}  // namespace
}  // namespace inferscale
