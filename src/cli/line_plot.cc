#include "cli/line_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace inferscale {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 440;
constexpr double kLeft = 76;
constexpr double kRight = 96;  // room for the names at the lines' ends
constexpr double kTop = 76;
constexpr double kBottom = 64;

constexpr std::array kColours = {"#d9622b", "#2374b8", "#3a8f4d", "#8a56ac"};
constexpr std::array kDarkColours = {"#f08a55", "#5aa9e6", "#6cc381", "#b78bd6"};

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

struct Axis {
  double step = 1;
  double top = 1;  // a multiple of step
  double from = 0;
  double to = 0;  // pixels of 0 and top

  double At(double value) const { return from + (to - from) * value / top; }
};

Axis MakeAxis(double largest, int ticks, double from, double to) {
  Axis axis{TickStep(largest, ticks), 0, from, to};
  axis.top = std::max(1.0, std::ceil(largest / axis.step - 1e-9)) * axis.step;
  return axis;
}

std::string Style() {
  std::string light;
  std::string dark;
  for (size_t i = 0; i < kColours.size(); ++i) {
    light += fmt::format(" .l{0}{{stroke:{1}}} .m{0}{{fill:{1}}}", i, kColours[i]);
    dark += fmt::format(" .l{0}{{stroke:{1}}} .m{0}{{fill:{1}}}", i, kDarkColours[i]);
  }
  return fmt::format(
      "<style>\n"
      "text{{font-family:system-ui,'Helvetica Neue',Arial,sans-serif;font-size:13px;fill:#444}}\n"
      ".page{{fill:#fff}} .title{{font-size:18px;font-weight:600;fill:#111}}\n"
      ".grid{{stroke:#e3e3e3}} .axis{{stroke:#888}} .line{{fill:none;stroke-width:2.5}} "
      ".name{{font-weight:600}}\n"
      "{}\n@media (prefers-color-scheme:dark){{text{{fill:#bbb}} .page{{fill:#16181c}} "
      ".title{{fill:#f2f2f2}} .grid{{stroke:#2c3036}} .axis{{stroke:#777}}{}}}\n</style>\n",
      light.substr(1), dark);
}

std::string Axes(const LinePlot& plot, const Axis& x, const Axis& y) {
  std::string out;
  for (int i = 0; i * y.step <= y.top * 1.0001; ++i) {
    const double value = i * y.step;
    out += fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
        i == 0 ? "axis" : "grid", x.from, y.At(value), x.to, y.At(value), x.from - 10,
        y.At(value) + 4.5, value);
  }
  for (int i = 0; i * x.step <= x.top * 1.0001; ++i) {
    const double value = i * x.step;
    out += fmt::format(
        "<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4:g}</text>\n",
        x.At(value), y.from, y.from + 5, y.from + 22, value);
  }
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                     (x.from + x.to) / 2, kHeight - 16, Escape(plot.x_label));
  out += fmt::format(
      "<text transform=\"translate(20 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (y.from + y.to) / 2, Escape(plot.y_label));
  return out;
}

std::string Line(const PlotLine& line, size_t index, const Axis& x, const Axis& y) {
  std::string path;
  std::string marks;
  for (const auto& [px, py] : line.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x.At(px), y.At(py));
    marks += fmt::format(
        "<circle class=\"m{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\">"
        "<title>{:g}: {:.1f}</title></circle>",
        index, x.At(px), y.At(py), px, py);
  }
  return fmt::format("<path class=\"line l{}\" d=\"{}\"/>{}\n", index, path, marks);
}

// In the corner that rising lines leave free, in the order of the lines.
std::string Legend(const LinePlot& plot) {
  std::string out;
  for (size_t i = 0; i < plot.lines.size(); ++i) {
    const double y = kTop + 24 + 22 * static_cast<double>(i);
    out += fmt::format(
        "<line class=\"line l{0}\" x1=\"{1:.1f}\" y1=\"{2:.1f}\" x2=\"{3:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{4:.1f}\" y=\"{5:.1f}\">{6}</text>\n",
        i, kLeft + 20, y - 4.5, kLeft + 46, kLeft + 54, y, Escape(plot.lines[i].name));
  }
  return out;
}

// The last value, at the line's end.
std::string EndLabel(const PlotLine& line, size_t index, const Axis& x, const Axis& y) {
  if (line.points.empty()) return "";
  const auto& [px, py] = line.points.back();
  return fmt::format("<text class=\"name m{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", index,
                     x.At(px) + 10, y.At(py) + 4.5,
                     py < 100 ? fmt::format("{:.2g}", py) : fmt::format("{:.0f}", py));
}

}  // namespace

double TickStep(double top, int ticks) {
  if (!(top > 0)) return 1;
  const double least = top / ticks;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * 0.9999) return factor * power;
  }
  return 10 * power;
}

std::string RenderSvg(const LinePlot& plot) {
  double largest_x = 0;
  double largest_y = 0;
  for (const PlotLine& line : plot.lines) {
    for (const auto& [px, py] : line.points) {
      largest_x = std::max(largest_x, px);
      largest_y = std::max(largest_y, py);
    }
  }
  const Axis x = MakeAxis(largest_x, 10, kLeft, kWidth - kRight);
  const Axis y = MakeAxis(largest_y, 6, kHeight - kBottom, kTop);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
      "height=\"{1:g}\" role=\"img\">\n<title>{2}</title>\n",
      kWidth, kHeight, Escape(plot.title));
  out += Style();
  out += fmt::format("<rect class=\"page\" width=\"{:g}\" height=\"{:g}\" rx=\"8\"/>\n", kWidth,
                     kHeight);
  out += fmt::format("<text class=\"title\" x=\"24\" y=\"34\">{}</text>\n", Escape(plot.title));
  out += fmt::format("<text x=\"24\" y=\"55\">{}</text>\n", Escape(plot.subtitle));
  out += Axes(plot, x, y);
  for (size_t i = 0; i < plot.lines.size(); ++i) out += Line(plot.lines[i], i, x, y);
  for (size_t i = 0; i < plot.lines.size(); ++i) out += EndLabel(plot.lines[i], i, x, y);
  out += Legend(plot);
  return out + "</svg>\n";
}

}  // namespace inferscale
