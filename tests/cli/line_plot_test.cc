#include "cli/line_plot.h"

#include <gtest/gtest.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <sstream>

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

struct Point {
  double x = 0;
  double y = 0;
};

// Parses the picture as XML, checks that every marker lies inside it, and returns the markers.
std::vector<Point> CheckSvg(const std::string& svg) {
  boost::property_tree::ptree document;
  std::istringstream text(svg);
  boost::property_tree::read_xml(text, document);  // throws where it isn't well-formed
  std::vector<Point> markers;
  for (const auto& [name, element] : document.get_child("svg")) {
    if (name != "circle") continue;
    // As text: GCC 12 takes what get<double> returns for uninitialised under AddressSanitizer.
    const Point at{std::stod(element.get<std::string>("<xmlattr>.cx")),
                   std::stod(element.get<std::string>("<xmlattr>.cy"))};
    EXPECT_GE(at.x, 0);
    EXPECT_LE(at.x, 760);
    EXPECT_GE(at.y, 0);
    EXPECT_LE(at.y, 440);
    markers.push_back(at);
  }
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  return markers;
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
  const auto markers = CheckSvg(RenderSvg({"t", "", "", "", {{"a", {{0, 10}, {1, 20}}}}}));
  ASSERT_EQ(markers.size(), 2);
  EXPECT_GT(markers[1].x, markers[0].x);
  EXPECT_LT(markers[1].y, markers[0].y);
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
