#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tutti::tools {

// What `tutti plot MODEL_DIR` was asked for.
struct PlotOptions {
  std::string directory;             // with metrics.jsonl, or such a file
  std::vector<std::string> metrics;  // empty: all but speeds
  std::string svg;                   // a file to write; empty: none
  int height = 12;                   // of a chart, in lines
};

// One line of a chart.
struct Series {
  std::string kind;                                    // "train" or "eval"
  std::vector<std::pair<double, double>> points = {};  // step, value; finite
};

// What one metric was, in training and in evaluations.
struct Curve {
  std::string metric;
  std::vector<Series> series = {};
};

// The curves in the text of a metrics.jsonl, loss first, then by name. "train_accuracy" of training
// and "accuracy" of evaluations are one curve. Lines that are no JSON are errors with their number.
absl::StatusOr<std::vector<Curve>> ParseCurves(std::string_view text);

// How the terminal can show a chart.
struct ChartStyle {
  int width = 80;   // columns
  int height = 12;  // lines of the chart itself
  bool unicode = true;
  bool color = false;
};
// A chart of at most style.width columns: lines of dots (braille, or * without unicode) for
// training, o for evaluations, the axes with their numbers.
std::string DrawChart(const Curve& curve, const ChartStyle& style);

// All curves as one picture.
std::string DrawSvg(const std::vector<Curve>& curves);

// What is to be printed; writes the picture if one is asked for. Errors name the file.
absl::StatusOr<std::string> Plot(const PlotOptions& options, const ChartStyle& style);

// Ends of an axis that holds [low, high], and the distance of its marks, all round numbers.
struct Axis {
  double low = 0;
  double high = 1;
  double step = 1;
};
Axis AxisFor(double low, double high, int marks);

// "0.25", "1200", "3e-05": short, and exact for round numbers.
std::string ShortNumber(double value);

}  // namespace tutti::tools
