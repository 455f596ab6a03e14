// A line plot as SVG text, readable on light and dark pages.
#ifndef INFERSCALE_CLI_LINE_PLOT_H_
#define INFERSCALE_CLI_LINE_PLOT_H_

#include <string>
#include <utility>
#include <vector>

namespace inferscale {

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // by rising x; neither is negative
};

struct LinePlot {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::string y_label;
  std::vector<PlotLine> lines;  // at most 4
};

// Both axes begin at 0. Text is escaped.
std::string RenderSvg(const LinePlot& plot);

// The distance between ticks, 1, 2 or 5 times a power of ten, that gives at most `ticks` up to
// `top`.
double TickStep(double top, int ticks);

}  // namespace inferscale

#endif  // INFERSCALE_CLI_LINE_PLOT_H_
