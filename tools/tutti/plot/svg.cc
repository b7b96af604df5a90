// The curves of a training as one SVG: a panel for each, two beside each other. Colours follow the
// reader's light or dark theme.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/tutti/plot/plot.h"

namespace tutti::tools {
namespace {

constexpr int kPanelWidth = 480;
constexpr int kPanelHeight = 280;
constexpr int kLeft = 64, kRight = 16, kTop = 36, kBottom = 34;

constexpr std::string_view kCss = R"(<style>
  text { font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2328 }
  .paper { fill: #ffffff }
  .title { font-size: 14px; font-weight: 600 }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .train { fill: none; stroke: #0969da; stroke-width: 1.6 }
  .eval { fill: none; stroke: #bc4c00; stroke-width: 1.6 }
  .dot { fill: #bc4c00 }
  .legend-train { fill: #0969da }
  .legend-eval { fill: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .paper { fill: #0d1117 }
    .grid { stroke: #30363d }
    .train { stroke: #58a6ff }
    .eval { stroke: #f0883e }
    .dot, .legend-eval { fill: #f0883e }
    .legend-train { fill: #58a6ff }
  }
</style>
)";

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return escaped;
}

struct Panel {
  double left, top;
  Axis x, y;

  double X(double step) const {
    return left + kLeft + (step - x.low) / (x.high - x.low) * (kPanelWidth - kLeft - kRight);
  }
  double Y(double value) const {
    return top + kTop + (y.high - value) / (y.high - y.low) * (kPanelHeight - kTop - kBottom);
  }
};

Panel PanelFor(const Curve& curve, double left, double top) {
  double x_low = HUGE_VAL, x_high = -HUGE_VAL, y_low = HUGE_VAL, y_high = -HUGE_VAL;
  for (const Series& series : curve.series) {
    for (const auto& [step, value] : series.points) {
      x_low = std::min(x_low, step), x_high = std::max(x_high, step);
      y_low = std::min(y_low, value), y_high = std::max(y_high, value);
    }
  }
  return {left, top, AxisFor(x_low, x_high, 5), AxisFor(y_low, y_high, 5)};
}

std::string DrawAxes(const Panel& panel) {
  std::string text;
  for (double v = panel.y.low; v <= panel.y.high + panel.y.step / 2; v += panel.y.step) {
    const double shown = std::abs(v) < panel.y.step * 1e-9 ? 0 : v;
    text += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" "
        "y2=\"{:.1f}\"/>\n<text x=\"{:.1f}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>\n",
        panel.X(panel.x.low), panel.X(panel.x.high), panel.Y(v), panel.Y(v),
        panel.X(panel.x.low) - 6, panel.Y(v) + 4, ShortNumber(shown));
  }
  for (double v = panel.x.low; v <= panel.x.high + panel.x.step / 2; v += panel.x.step) {
    const double shown = std::abs(v) < panel.x.step * 1e-9 ? 0 : v;
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                        panel.X(v), panel.Y(panel.y.low) + 18, ShortNumber(shown));
  }
  return text;
}

std::string DrawSeries(const Panel& panel, const Series& series) {
  std::string points, dots;
  for (const auto& [step, value] : series.points) {
    points += fmt::format("{:.1f},{:.1f} ", panel.X(step), panel.Y(value));
    if (series.kind == "eval") {
      dots += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>\n",
                          panel.X(step), panel.Y(value));
    }
  }
  return fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n{}",
                     series.kind == "eval" ? "eval" : "train", points, dots);
}

std::string DrawPanel(const Curve& curve, double left, double top) {
  const Panel panel = PanelFor(curve, left, top);
  std::string text = fmt::format("<text class=\"title\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                                 left + kLeft, top + 22, Escaped(curve.metric));
  double at = left + kPanelWidth - kRight;
  for (const Series& series : curve.series) {
    const bool eval = series.kind == "eval";
    text += fmt::format(
        "<text class=\"legend-{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{} {}</text>\n",
        eval ? "eval" : "train", at, top + 22, Escaped(series.kind),
        ShortNumber(series.points.back().second));
    at -= 110;
  }
  text += DrawAxes(panel);
  for (const Series& series : curve.series) text += DrawSeries(panel, series);
  return text;
}

}  // namespace

std::string DrawSvg(const std::vector<Curve>& curves) {
  const int across = curves.size() > 1 ? 2 : 1;
  const int down = (int(curves.size()) + across - 1) / across;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\">\n{2}<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
      across * kPanelWidth, down * kPanelHeight, kCss);
  for (size_t i = 0; i < curves.size(); ++i) {
    text += DrawPanel(curves[i], double(int(i) % across) * kPanelWidth,
                      double(int(i) / across) * kPanelHeight);
  }
  return text + "</svg>\n";
}

}  // namespace tutti::tools
