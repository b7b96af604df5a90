#include "tools/tutti/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tutti/base/console.h"

namespace tutti::tools {

void Report(const Figure& figure, bool json) {
  if (json) {
    const nlohmann::ordered_json line = {{"bench", figure.bench},
                                         {"case", figure.case_name},
                                         {"value", figure.value},
                                         {"unit", figure.unit}};
    FormatTo(stdout, "{}\n", line.dump());
  } else {
    FormatTo(stdout, "{:<8} {:<40} {:>12.4g} {}\n", figure.bench, figure.case_name, figure.value,
             figure.unit);
  }
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tutti::tools
