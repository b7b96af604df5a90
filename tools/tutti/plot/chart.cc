// A chart in a terminal. A braille character has 2 x 4 dots, so a chart of 70 x 12 characters has
// 140 x 48 of them: enough to see a curve bend. Lines of training are dots that are joined;
// evaluations, which are few, are an o each.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/tutti/plot/plot.h"

namespace tutti::tools {
namespace {

constexpr const char* kGreen = "\033[32m";
constexpr const char* kYellow = "\033[33m";
constexpr const char* kPlain = "\033[0m";
constexpr int kLeastWidth = 8;  // of the dots, in columns

struct Range {
  double low = 0;
  double high = 0;
};

std::string Utf8(uint32_t code) {
  return {char(0xe0 | code >> 12), char(0x80 | (code >> 6 & 0x3f)), char(0x80 | (code & 0x3f))};
}

class Canvas {
 public:
  Canvas(int columns, int lines, const ChartStyle& style)
      : columns_(columns), lines_(lines), style_(style) {
    dots_.resize(size_t(columns * lines));
    marks_.resize(size_t(columns * lines));
  }
  // Of dots: what is not braille has one a character.
  int width() const { return columns_ * (style_.unicode ? 2 : 1); }
  int height() const { return lines_ * (style_.unicode ? 4 : 1); }

  void Dot(int x, int y) {
    if (!style_.unicode) {
      dots_[At(x, y)] = 1;
      return;
    }
    // The dots of a braille character as bits: down the left column, down the right one, and the
    // last line behind both.
    static constexpr int kBits[4][2] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}};
    dots_[At(x / 2, y / 4)] |= uint8_t(1 << kBits[y % 4][x % 2]);
  }
  void Line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      Dot(x0 + (x1 - x0) * i / steps, y0 + int(std::lround(double(y1 - y0) * i / steps)));
    }
  }
  void Mark(int x, int y) { marks_[style_.unicode ? At(x / 2, y / 4) : At(x, y)] = true; }

  std::string Row(int line) const {
    std::string text;
    for (int c = 0; c < columns_; ++c) {
      const size_t at = At(c, line);
      if (marks_[at]) {
        text += Colored(kYellow, "o");
      } else if (dots_[at] != 0) {
        text += Colored(kGreen, style_.unicode ? Utf8(0x2800 + dots_[at]) : "*");
      } else {
        text += ' ';
      }
    }
    return text;
  }

 private:
  size_t At(int column, int line) const { return size_t(line * columns_ + column); }
  std::string Colored(const char* color, const std::string& text) const {
    return style_.color ? color + text + kPlain : text;
  }

  const int columns_;
  const int lines_;
  const ChartStyle& style_;
  std::vector<uint8_t> dots_;
  std::vector<bool> marks_;
};

void Widen(Range& range, double value, bool first) {
  range.low = first ? value : std::min(range.low, value);
  range.high = first ? value : std::max(range.high, value);
}

void Ranges(const Curve& curve, Range& x, Range& y) {
  bool first = true;
  for (const Series& series : curve.series) {
    for (const auto& [step, value] : series.points) {
      Widen(x, step, first);
      Widen(y, value, first);
      first = false;
    }
  }
}

void DrawSeries(const Series& series, const Range& xs, const Axis& ys, Canvas& canvas) {
  int last_x = -1, last_y = -1;
  for (const auto& [step, value] : series.points) {
    const double right = xs.high > xs.low ? (step - xs.low) / (xs.high - xs.low) : 0;
    const double up = (value - ys.low) / (ys.high - ys.low);
    const int x = int(std::lround(right * (canvas.width() - 1)));
    const int y = int(std::lround((1 - up) * (canvas.height() - 1)));
    if (series.kind == "eval") {
      canvas.Mark(x, y);
    } else if (last_x >= 0) {
      canvas.Line(last_x, last_y, x, y);
    } else {
      canvas.Dot(x, y);
    }
    last_x = x, last_y = y;
  }
}

// "accuracy: train (dots) 0.91 at step 900, eval (o) 0.88 at step 900"
std::string Title(const Curve& curve, int width) {
  std::string text = curve.metric + ":";
  for (const Series& series : curve.series) {
    const auto& [step, value] = series.points.back();
    text +=
        fmt::format("{} {} ({}) {} at step {}", &series == &curve.series[0] ? "" : ",", series.kind,
                    series.kind == "eval" ? "o" : "line", ShortNumber(value), ShortNumber(step));
  }
  if (int(text.size()) > width) text.resize(size_t(width));
  return text + "\n";
}

}  // namespace

std::string DrawChart(const Curve& curve, const ChartStyle& style) {
  Range xs, ys;
  Ranges(curve, xs, ys);
  const int lines = std::max(style.height, 2);
  const Axis axis = AxisFor(ys.low, ys.high, std::max(lines / 3, 2));
  // The label of a line that a mark of the axis falls on.
  std::vector<std::string> labels(static_cast<size_t>(lines));
  size_t label_width = 0;
  for (double mark = axis.low; mark <= axis.high + axis.step / 2; mark += axis.step) {
    const double up = (mark - axis.low) / (axis.high - axis.low);
    const auto line = size_t(std::lround((1 - std::min(up, 1.0)) * (lines - 1)));
    labels[line] = ShortNumber(std::abs(mark) < axis.step * 1e-9 ? 0 : mark);
    label_width = std::max(label_width, labels[line].size());
  }
  const int columns = std::max(style.width - int(label_width) - 2, kLeastWidth);
  Canvas canvas(columns, lines, style);
  for (const Series& series : curve.series) DrawSeries(series, xs, axis, canvas);
  std::string text = Title(curve, std::max(style.width, kLeastWidth));
  const char* const rule = style.unicode ? "\u2502" : "|";
  const char* const tick = style.unicode ? "\u2524" : "+";
  for (int line = 0; line < lines; ++line) {
    const std::string& label = labels[size_t(line)];
    text += fmt::format("{:>{}} {}{}\n", label, label_width, label.empty() ? rule : tick,
                        canvas.Row(line));
  }
  const std::string left = ShortNumber(xs.low);
  const std::string right = fmt::format("step {}", ShortNumber(xs.high));
  const int between = std::max(columns - int(left.size()), int(right.size()) + 1);
  text += fmt::format("{:>{}} {}{:>{}}\n", "", label_width + 1, left, right, between);
  return text;
}

}  // namespace tutti::tools
