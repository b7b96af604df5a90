#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/train/summaries/events.h"

namespace tutti {
namespace {

constexpr double kLeast = 1e-12;  // smaller ones count as 0
constexpr double kMost = 1e20;
constexpr double kGrowth = 1.1;

// Upper ends of the ranges: mirrored around 0, then the largest number.
const std::vector<double>& Limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> positive;
    for (double v = kLeast; v < kMost; v *= kGrowth) positive.push_back(v);
    std::vector<double> all;
    for (auto v = positive.rbegin(); v != positive.rend(); ++v) all.push_back(-*v);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(std::numeric_limits<double>::max());
    return all;
  }();
  return limits;
}

}  // namespace

Histogram HistogramOf(const Tensor& values) {
  const std::vector<double>& limits = Limits();
  std::vector<double> counts(limits.size());
  Histogram histogram;
  histogram.min = std::numeric_limits<double>::max();
  histogram.max = std::numeric_limits<double>::lowest();
  const auto add = [&](double value) {
    if (!std::isfinite(value)) return;
    histogram.min = std::min(histogram.min, value);
    histogram.max = std::max(histogram.max, value);
    histogram.count += 1;
    histogram.sum += value;
    histogram.sum_squares += value * value;
    const auto at = std::upper_bound(limits.begin(), limits.end() - 1, value);
    counts[size_t(at - limits.begin())] += 1;
  };
  VisitDType(values.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const T& element : values.values<T>()) {
      if constexpr (std::is_arithmetic_v<T>) {
        add(double(element));
      } else {
        add(double(float(element)));
      }
    }
  });
  if (histogram.count == 0) histogram.min = histogram.max = 0;
  // Ranges that hold nothing are joined with the next one below, so that the list stays short.
  for (size_t i = 0; i < counts.size(); ++i) {
    const bool empty_pair =
        counts[i] == 0 && !histogram.counts.empty() && histogram.counts.back() == 0;
    if (empty_pair) histogram.limits.pop_back(), histogram.counts.pop_back();
    histogram.limits.push_back(limits[i]);
    histogram.counts.push_back(counts[i]);
  }
  return histogram;
}

}  // namespace tutti
