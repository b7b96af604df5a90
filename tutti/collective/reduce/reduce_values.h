#pragma once

#include <algorithm>
#include <span>

#include "tutti/collective/communicator.h"

namespace tutti::collective {

// The reduction of one number from each rank, in float64 and in the order given: what an operation
// must come to, but for rounding. For those that check results. REQUIRES: there is one.
inline double ReduceValues(Reduction reduction, std::span<const double> values) {
  double result = values[0];
  for (const double value : values.subspan(1)) {
    switch (reduction) {
      case Reduction::kSum:
      case Reduction::kMean:
        result += value;
        break;
      case Reduction::kMin:
        result = std::min(result, value);
        break;
      case Reduction::kMax:
        result = std::max(result, value);
        break;
      case Reduction::kProduct:
        result *= value;
        break;
    }
  }
  return reduction == Reduction::kMean ? result / static_cast<double>(values.size()) : result;
}

}  // namespace tutti::collective
