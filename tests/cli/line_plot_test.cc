#include "cli/line_plot.h"

#include <gtest/gtest.h>

#include <regex>

#include "cli/ttft.h"

namespace inferscale {
namespace {

TEST(TickStep, IsRoundAndGivesFewTicks) {
  EXPECT_DOUBLE_EQ(TickStep(100, 10), 10);
  EXPECT_DOUBLE_EQ(TickStep(101, 10), 20);
  EXPECT_DOUBLE_EQ(TickStep(5.5, 6), 1);
  EXPECT_DOUBLE_EQ(TickStep(0.06, 6), 0.01);
  EXPECT_DOUBLE_EQ(TickStep(0, 6), 1);
  for (double top = 0.001; top < 1e6; top *= 1.37) {
    EXPECT_LE(top / TickStep(top, 6), 6.01) << top;
    EXPECT_GE(top / TickStep(top, 6), 2.0) << top;
  }
}

// Elements that are opened are closed, and every point lies inside the picture.
void CheckSvg(const std::string& svg) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)([^>]*?)(/?)>");
  for (std::sregex_iterator it(svg.begin(), svg.end(), tag), end; it != end; ++it) {
    const std::smatch& match = *it;
    if (match[4].length() != 0) continue;
    if (match[1].length() == 0) {
      open.push_back(match[2]);
    } else {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), match[2].str());
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
  const std::regex circle("cx=\"([-0-9.]+)\" cy=\"([-0-9.]+)\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), circle), end; it != end; ++it) {
    EXPECT_GE(std::stod((*it)[1]), 0);
    EXPECT_LE(std::stod((*it)[1]), 760);
    EXPECT_GE(std::stod((*it)[2]), 0);
    EXPECT_LE(std::stod((*it)[2]), 440);
  }
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(RenderSvg, IsWellFormed) {
  const LinePlot plot{
      "Title <&>", "sub", "x", "y", {{"a&b", {{0, 1}, {50, 800}}}, {"c", {{0, 0}}}}};
  const std::string svg = RenderSvg(plot);
  CheckSvg(svg);
  EXPECT_NE(svg.find("Title &lt;&amp;&gt;"), std::string::npos);
  EXPECT_EQ(svg.find("a&b"), std::string::npos);
}

TEST(RenderSvg, TakesNoPointsAndOnlyZeros) {
  CheckSvg(RenderSvg({"t", "", "", "", {}}));
  CheckSvg(RenderSvg({"t", "", "", "", {{"a", {}}}}));
  CheckSvg(RenderSvg({"t", "", "", "", {{"a", {{0, 0}}}}}));
}

TEST(RenderSvg, PutsMoreHigherUp) {
  const std::string svg = RenderSvg({"t", "", "", "", {{"a", {{0, 10}, {1, 20}}}}});
  const std::regex circle("cx=\"([-0-9.]+)\" cy=\"([-0-9.]+)\"");
  std::sregex_iterator it(svg.begin(), svg.end(), circle);
  const double first_x = std::stod((*it)[1]);
  const double first_y = std::stod((*it)[2]);
  ++it;
  EXPECT_GT(std::stod((*it)[1]), first_x);
  EXPECT_LT(std::stod((*it)[2]), first_y);
}

TEST(Median, OfOddEvenAndNothing) {
  EXPECT_DOUBLE_EQ(Median({}), 0);
  EXPECT_DOUBLE_EQ(Median({3}), 3);
  EXPECT_DOUBLE_EQ(Median({9, 1, 5}), 5);
  EXPECT_DOUBLE_EQ(Median({9, 1, 5, 2}), 3.5);
}

TEST(TtftToJson, NamesWhatWasMeasured) {
  TtftRow row;
  row.asked = {50, 6};
  row.facts = 49;
  row.tokens = 1500;
  row.text_ms = 800;
  row.kv_ms = 40;
  const auto rows = TtftToJson({row});
  const auto& object = rows.at(0).as_object();
  EXPECT_EQ(object.at("facts").to_number<int>(), 49);
  EXPECT_EQ(object.at("asked").to_number<int>(), 50);
  EXPECT_EQ(object.at("plain").to_number<int>(), 6);
  EXPECT_EQ(object.at("tokens").to_number<int>(), 1500);
  EXPECT_DOUBLE_EQ(object.at("ratio").as_double(), 20);
  CheckSvg(TtftSvg({row}, "sub"));
}

}  // namespace
}  // namespace inferscale
