#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::tools {

// One measured figure.
struct Figure {
  std::string bench;      // "step"
  std::string case_name;  // "cnn batch 64, 1 thread"
  double value = 0;
  std::string unit;  // "ms"
};

// Prints a figure on stdout at once: as one JSON object a line, or as text.
void Report(const Figure& figure, bool json);

// The middle of `values` (the lower of two); 0 for none.
double Median(std::vector<double> values);

}  // namespace tutti::tools
